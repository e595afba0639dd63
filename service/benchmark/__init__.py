"""`cbwk bench`: measures the speed of the service over HTTP."""
