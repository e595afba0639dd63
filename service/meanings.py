"""What each kind of problem means and what to do, in Markdown: the FAQ and the page `/docs/problems`."""

# fmt: off
MEANINGS: dict[str, tuple[str, str]] = {
    "bad-request": ("the request cannot be read", "correct the client"),
    "not-http": (
        "the request is not HTTP/1.1 or its end is ambiguous, or more than 64 requests wait on its connection, "
        "which is closed",
        "correct the client",
    ),
    "not-json": ("the body is not JSON, or not UTF-8", "correct the client"),
    "campaign-differs": (
        "the header `X-Campaign-Id` names another campaign than the body, or is given twice",
        "send the body's campaign, or no header",
    ),
    "not-a-model": ("`PUT …/model` got bytes that are not a model", "send the bytes that `GET …/model` returned"),
    "unauthorized": ("the key is unknown or revoked", "get another one from an admin"),
    "key-missing": ("no key was sent", "`Authorization: Bearer …`"),
    "forbidden": ("this is not allowed", "–"),
    "role-missing": ("the key has another role", "use a key with the role that `detail` names"),
    "key-limited": ("the key is limited to some campaigns, and the request concerns all", "use an unlimited key"),
    "not-found": ("what the request names does not exist", "check the path and the ids"),
    "path-not-found": ("there is nothing at this path", "see `/docs`"),
    "campaign-not-found": ("no such campaign, or the key may not see it", "check the id, and the key's campaigns"),
    "portfolio-not-found": ("no such portfolio", "see `GET /portfolios`"),
    "decision-not-found": (
        "no such decision in this campaign",
        "check both ids; it may have been pruned, or never stored (`paused`, `not_started`, `ended`)",
    ),
    "evaluation-not-found": ("no such evaluation of this campaign", "check the id"),
    "key-not-found": ("no such key", "see `GET /admin/keys`"),
    "webhook-not-found": ("no such webhook", "see `GET /admin/webhooks`"),
    "unknown-arm": ("`arms` or `retire_arms` names an arm that does not exist", "check the id"),
    "method-not-allowed": ("the path does not take this method", "see `/docs`"),
    "conflict": ("the request contradicts the present state", "read the present state again"),
    "campaign-exists": (
        "a campaign with this id exists; after `PUT`, one that differs in the fields that are named",
        "use another id; `PATCH` changes a campaign",
    ),
    "portfolio-exists": ("a portfolio with this id exists", "use another id"),
    "campaign-archived": ("an archived campaign cannot be changed", "create a new campaign"),
    "decision-id-reused": ("the `decision_id` was used with another body", "use a new id for every request"),
    "idempotency-key-reused": (
        "the `Idempotency-Key` was used with another request in the last 24 hours",
        "use a new key for every request",
    ),
    "feedback-differs": ("another value was reported before", "keep the first one, or correct it with `adjust`"),
    "not-voidable": ("the costs are booked, or the decision has expired", "correct it with `adjust`"),
    "budget-below-spent": ("the new budget is below what is spent and held", "set a larger one, or pause"),
    "window-below-spent": (
        "the new limit of a window is below what its present period has spent and holds",
        "set a larger one, or wait for the next period",
    ),
    "floor-arm": (
        'the floor arm of a campaign with `null_arm: "last_resort"` cannot be retired or paused',
        "leave it; change its max cost if need be",
    ),
    "window-pruned": (
        "the window is new, and decisions of its present period were pruned: they cannot be counted",
        "add it in the next period",
    ),
    "negative-spent": (
        "an adjustment, or late costs after an adjustment, would make spending negative",
        "check the sign and the amount; before late costs, take the adjustment back",
    ),
    "version-differs": (
        "another request has changed the campaign since you read it",
        "read it again, then repeat the change",
    ),
    "account-full": ("what is spent of a resource would exceed 4·10¹² units", "correct a wrong amount with `adjust`"),
    "arm-exists": ("the campaign has or had an arm with this id", "use another id"),
    "change-refused": ("the change cannot be made now", "`detail` says why"),
    "stage-one": ("this is not possible during the first of two stages", "wait for the end of the stage"),
    "model-differs": ("the model has another shape", "`errors` names the difference"),
    "last-admin-key": ("without this key there would be no admin key", "make another admin key first"),
    "webhooks-full": ("there are 100 webhooks", "delete one"),
    "nothing-to-evaluate": ("the campaign has no arms of its own", "–"),
    "too-large": ("the body is over the limit", "send smaller batches, or raise `CBWK_…_BYTES_MAX`"),
    "head-too-large": (
        "the head has more than 64 KiB or 256 headers; the connection is closed",
        "send fewer or shorter headers",
    ),
    "invalid": ("a field has a value that is not allowed", "`errors` names the fields"),
    "invalid-campaign": (
        "fields of the configuration, or of the change, contradict each other",
        "`errors` names the fields",
    ),
    "invalid-context": ("the context does not fit the declared features", "send every feature, or declare a `default`"),
    "invalid-actions": ("the `actions` do not fit the campaign", "`detail` says which ones"),
    "actions-needed": ("the campaign has no arms of its own", "send `actions`"),
    "actions-not-shared": ('`actions` need `model: "shared"`', "leave them out"),
    "invalid-baseline": (
        "`baseline_arm` is missing in shadow mode, unknown, or sent outside shadow mode",
        "`errors` says which",
    ),
    "invalid-max-cost": (
        "`max_cost` or `max_costs` of a request: above the declared one, or of an unknown resource or arm",
        "`errors` has the field, the arm and its limit",
    ),
    "invalid-amount": ("an amount with more than six decimals, or too large", "round it"),
    "unknown-resource": (
        "a resource that does not exist: 404 in a change or a correction, 422 in feedback",
        "check the names",
    ),
    "null-arm-cost": ("a null decision cannot have cost anything", "check the ids"),
    "invalid-evaluation": ("arms, resources or policies that the campaign cannot have", "`errors` names the fields"),
    "invalid-model": (
        "the model can be read but not used, or counts costs in units that cannot be converted",
        "`errors` says why, with both units",
    ),
    "too-much-work": (
        "one request asks for more than `CBWK_DECIDE_WORK_MAX` multiplications",
        "send fewer items at once; `detail` has the numbers",
    ),
    "url-refused": ("a webhook cannot have this address", "`errors` says why: [webhooks](operating.md#webhooks)"),
    "format-not-installed": ("this export needs a package that is not installed", "install `cbwk[parquet]`"),
    "too-many-requests": (
        "the key has made the requests of its `requests_per_second`; nothing was done",
        "wait for `Retry-After`",
    ),
    "internal": ("an error of the service", "find it in the log by the `X-Request-ID` of the answer"),
    "unavailable": ("the service cannot answer now", "try again"),
    "not-ready": ("the process has just started", "try again"),
    "queue-full": ("more requests than can be answered in time; nothing was done", "try again later, or add a replica"),
    "deadline-passed": (
        "no answer in time; it is not known whether it was done",
        "repeat it with the same `decision_id`",
    ),
    "database-away": (
        "the database did not answer; it is not known whether it was done",
        "repeat it with the same `decision_id`",
    ),
    "campaign-busy": ("another process keeps the campaign locked", "try again"),
    "portfolio-busy": ("another process keeps the portfolio locked", "try again"),
    "rules-unknown": (
        "a newer version of the service created the campaign; this one cannot decide for it",
        "update the service",
    ),
    "evaluations-full": ("too many evaluations wait", "try again later"),
}
# fmt: on
