"""The decision service: HTTP around `cbwk_core`."""
