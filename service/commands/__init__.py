"""The commands of `cbwk` that have a file of their own."""
