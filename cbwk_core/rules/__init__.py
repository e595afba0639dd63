"""The rules of the algorithm: every formula once, for arrays, with its scalar twin directly below where one pays."""
