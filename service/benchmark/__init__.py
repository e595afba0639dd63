"""How fast the service is, measured as a user would meet it: `cbwk bench`."""
