"""The commands of `cbwk`, one module each."""
