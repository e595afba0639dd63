"""Limits of requests that follow from what the engine can handle; limits in bytes are settings."""

ARMS_MAX = 1_000
RESOURCES_MAX = 16
# Of one resource: one of each period.
WINDOWS_MAX = 4
FEATURES_MAX = 200
# Candidates of one request under `model: "shared"`, and excluded arms of one request.
ACTIONS_MAX = 1_000
EXCLUDE_MAX = 1_000
# Items of one batch: other requests wait for their common transaction.
ITEMS_MAX = 1_000
# Multiplications of one request, and of one transaction where decisions need many: about 15 ms on one core.
DECIDE_WORK_MAX = 50_000_000
# Counts are float64 in the policy's state, exact below 2**53.
HORIZON_MAX = 1_000_000_000_000
# Of γ and Z, whose squares the policy uses; T/B is at most the horizon.
PARAMETER_MAX = 1e15
# 8 bytes each: 160 MB for the inverse Gram matrices of a campaign.
PARAMETERS_MAX = 20_000_000
TTL_SECONDS_MAX = 90 * 86_400
LATE_WINDOW_SECONDS_MAX = 366 * 86_400
# The name of a key, the reason of an adjustment.
TEXT_LENGTH_MAX = 500
# The strings of `metadata` of a campaign or an arm, and the name of a unit.
METADATA_MAX = 20
UNIT_LENGTH_MAX = 32
# A category or a hashed identifier.
VALUE_LENGTH_MAX = 1_000
# JavaScript rounds larger seeds.
SEED_MAX = 2**53 - 1
KEY_CAMPAIGNS_MAX = 1_000
# Webhooks of a service, and the length of their addresses.
WEBHOOKS_MAX = 100
URL_LENGTH_MAX = 2_000
# Campaigns with labels of their own in metrics.
LABELS_MAX = 1_000
# Requests a second of a key: from one in a hundred seconds to more than a process serves.
KEY_RATE_MIN, KEY_RATE_MAX = 0.01, 1_000_000.0
IDEMPOTENCY_KEY_LENGTH_MAX = 255
PAGE_MAX = 1_000
PAGE_DEFAULT = 100
# Points of a timeline: about the width of a screen in pixels.
TIMELINE_POINTS_MAX = 1_000
TIMELINE_POINTS_DEFAULT = 200
# Arms that a timeline counts by name: more lines cannot be distinguished.
TIMELINE_ARMS_MAX = 12
# Candidates and rounds of an evaluation.
CANDIDATES_MAX = 10
EVALUATED_ROUNDS_MAX = 1_000_000
