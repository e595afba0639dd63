# %% [markdown]
# # The library alone
#
# `cbwk_core` needs no service, no database and no clock: a state goes in, a state comes out. This script can be read as
# a notebook (editors run it cell by cell) or run as it is: `.venv/bin/python examples/embedded.py`. It takes seconds.
#
# A shop sends one of three offers, or none, to each of 2,000 visitors. An offer costs dollars and coupons, and neither
# budget is enough for all visitors.

# %%
import numpy as np

from cbwk_core import SquareCBwK
from cbwk_core.static_optimum import static_optimum

VISITORS = 2_000
OFFERS = ("postcard", "coupon", "call")
BUDGETS = (400.0, 450.0)  # dollars, coupons
rng = np.random.default_rng(7)

# For each kind of visitor (new, regular, lost) and offer: the probability of an order, and the costs.
ORDERS = np.array([[0.10, 0.25, 0.30], [0.20, 0.45, 0.35], [0.05, 0.10, 0.40]])
COSTS = np.array([[[0.2, 0.0], [0.1, 1.0], [0.9, 0.0]]] * 3)
KINDS = np.array([0.5, 0.3, 0.2])  # frequency of each kind

# %% [markdown]
# ## The optimum with known probabilities
#
# A linear program gives the best static policy. Its value per visitor times the visitors is the benchmark.

# %%
best = static_optimum(ORDERS, COSTS, np.array(BUDGETS) / VISITORS, KINDS)
print(f"the clairvoyant: {best.value * VISITORS:.0f} orders; one more dollar is worth {best.prices[0]:.2f} orders")

# %% [markdown]
# ## The policy, which starts without knowledge
#
# `decide` is pure: it returns arms and probabilities and keeps the state. `learn` returns the next state. With delayed
# feedback, call `commit` at once and `settle` when the feedback comes.

# %%
policy = SquareCBwK(
    arms=len(OFFERS), dimension=3, resources=2, horizon=VISITORS, budget=np.array(BUDGETS), model="per_arm"
)
state = policy.init()
expected, spent, sent = 0.0, np.zeros(2), np.zeros(len(OFFERS) + 1, dtype=int)
for _ in range(VISITORS):
    kind = rng.choice(3, p=KINDS)
    visitor = np.eye(3)[[kind]]
    choice = policy.decide(state, visitor, rng.random(1))
    offer = int(choice.arm[0])
    sent[offer] += 1
    order, cost = 0.0, np.zeros(2)
    if offer != policy.null_arm:
        order, cost = float(rng.random() < ORDERS[kind, offer]), COSTS[kind, offer]
        expected += ORDERS[kind, offer]
    spent += cost
    state = policy.learn(state, visitor, choice.arm, np.array([order]), cost[None])

# %% [markdown]
# ## Result

# %%
share = expected / (best.value * VISITORS)
print(f"the policy: {expected:.0f} expected orders, {share:.0%} of the optimum")
for name, count in zip((*OFFERS, "nothing"), sent, strict=True):
    print(f"  {name:9} {count:5}")
for name, amount, budget in zip(("dollars", "coupons"), spent, BUDGETS, strict=True):
    print(f"  {amount:5.0f} of {budget:.0f} {name} spent")

# %% [markdown]
# ## To bytes and back
#
# A state is stored without pickle and continues where it was.

# %%
stored = policy.encode(state)
again = policy.decode(stored)
visitor, uniforms = np.eye(3)[[0]], rng.random(1)
assert policy.decide(again, visitor, uniforms).arm == policy.decide(state, visitor, uniforms).arm
print(f"the state is {len(stored):,} bytes")
