"""The rules of the algorithm. Each formula stands here once, for arrays.

Where one request needs the formula in plain floats, its scalar twin stands directly below, and
`tests/core/test_rules.py` compares the two. `round.py` and `single.py` call these functions and contain no formula.
Costs are in max costs of their resource; λ prices one max cost; lanes are the rows of a state (`state.py`).
"""
