"""Stage one (Algorithm 2)."""

# The kind of the change that ends the stage.
STAGE = "stage"
