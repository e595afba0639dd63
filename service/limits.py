"""How much of everything a request may carry. Limits in bytes are settings; these come from what the engine can do."""

ARMS_MAX = 1_000
RESOURCES_MAX = 16
FEATURES_MAX = 200
# Candidates of one request under `model: "shared"`, and of one request's exclusions.
ACTIONS_MAX = 1_000
EXCLUDE_MAX = 1_000
# Items of one batch: they share a transaction, and with it the time everybody else waits.
ITEMS_MAX = 1_000
# Counts are kept in float64 books, exact below 2**53; this leaves room for ever.
HORIZON_MAX = 1_000_000_000_000
# A number a policy holds in memory is 8 bytes: 160 MB for a campaign's inverse Gram matrices.
PARAMETERS_MAX = 20_000_000
TTL_SECONDS_MAX = 90 * 86_400
LATE_WINDOW_SECONDS_MAX = 366 * 86_400
# Text somebody wrote for others to read: a key's name, an adjustment's reason.
TEXT_LENGTH_MAX = 500
# A category or a hashed identifier.
VALUE_LENGTH_MAX = 1_000
# Seeds above this lose their last digits in JavaScript.
SEED_MAX = 2**53 - 1
KEY_CAMPAIGNS_MAX = 1_000
PAGE_MAX = 1_000
PAGE_DEFAULT = 100
# Points of a timeline: more than a screen has pixels for is never seen.
TIMELINE_POINTS_MAX = 1_000
TIMELINE_POINTS_DEFAULT = 200
# Arms of a timeline that are counted by name: more lines than these nobody tells apart.
TIMELINE_ARMS_MAX = 12
# Of an evaluation: candidates, and rounds of the log.
CANDIDATES_MAX = 10
EVALUATED_ROUNDS_MAX = 1_000_000
