"""The decision service: an HTTP interface to `cbwk_core`."""
