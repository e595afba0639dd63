"""Every row of the state table of a decision, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from service.engine.commands import Adjust, Decide, Expire, Feedback, PatchCampaign
from service.engine.replay import replay
from service.problems import Conflict, Invalid, NotFound
from service.reads import verify
from service.store import tables
from service.store.tables import outcome_digest
from tests.service.databases import make_holds_due
from tests.service.engine.campaigns import accounts, rows, with_campaign

ONE = 1_000_000


async def decided(engine, name="d1"):
    answer = await engine.submit(Decide("c", name, [0.5, 0.5]))
    assert answer.body["arm"] in ("a", "b")
    return answer.body


async def report(engine, name="d1", **halves):
    return await engine.submit(Feedback("c", name, **halves))


def test_a_decision_holds_its_max_costs(database):
    body = with_campaign(database, decided)
    assert body["hold"] == {"usd": 1, "impressions": 1}
    assert accounts(database) == (10 * ONE, ONE, 0, 0)


def test_both_halves_together_settle_and_teach(database):
    async def play(engine):
        await decided(engine)
        return await report(engine, reward=1.0, costs={"usd": 0.25, "impressions": 1})

    answer = with_campaign(database, play)
    assert (answer.body["status"], answer.body["learned"], answer.body["policy_version"]) == ("settled", True, 1)
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)
    assert rows(database, tables.hold) == []


def test_costs_first_charge_and_the_reward_settles(database):
    async def play(engine):
        await decided(engine)
        first = await report(engine, costs={"usd": 0.25})
        between = accounts(database)
        second = await report(engine, reward=0.5)
        return first.body, between, second.body

    first, between, second = with_campaign(database, play)
    assert (first["status"], first["learned"]) == ("charged", False)
    assert between == (10 * ONE, 0, ONE // 4, 0)
    assert (second["status"], second["learned"]) == ("settled", True)
    assert rows(database, tables.hold) == []


def test_a_reward_first_keeps_the_hold_and_the_costs_settle(database):
    async def play(engine):
        await decided(engine)
        first = await report(engine, reward=0.5)
        between = accounts(database)
        second = await report(engine, costs={"usd": 0.25})
        return first.body, between, second.body

    first, between, second = with_campaign(database, play)
    assert (first["status"], first["learned"]) == ("rewarded", False)
    assert between == (10 * ONE, ONE, 0, 0)
    assert (second["status"], second["learned"]) == ("settled", True)
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)


def test_a_void_frees_the_hold_and_teaches_nothing(database):
    async def play(engine):
        await decided(engine)
        first = await report(engine, void=True)
        again = await report(engine, void=True)
        return first, again

    first, again = with_campaign(database, play)
    assert (first.body["status"], first.body["learned"]) == ("voided", False)
    assert again.replayed
    assert again.body == first.body
    assert accounts(database) == (10 * ONE, 0, 0, 0)


def test_a_reward_of_minus_zero_is_zero_and_verify_finds_no_damage(database):
    async def play(engine):
        for name in ("together", "apart", "missing"):
            await decided(engine, name)
        await report(engine, "together", reward=-0.0, costs={"usd": -0.0, "impressions": 1})
        first, again = [await report(engine, "apart", reward=reward) for reward in (-0.0, 0.0)]
        assert (again.body, again.replayed) == (first.body, True)
        make_holds_due(database)
        await engine.submit(Expire())

    with_campaign(database, play, feedback={"missing_reward": -0.0})
    assert [str(row["reward"]) for row in rows(database, tables.outcome)] == ["0.0"] * 4
    with database.read() as connection:
        assert [check for check in verify(connection, "c")["checks"] if not check["ok"]] == []


def test_an_outcome_that_version_0_1_wrote_with_minus_zero_is_not_damaged_and_another_is(database):
    """The digest was that of -0.0; SQLite stored 0.0."""

    async def play(engine):
        for name in ("minus", "other"):
            await decided(engine, name)
            await report(engine, name, reward=0.0)

    def store(at, reward):
        outcome, row = tables.outcome, rows(database, tables.outcome)[at]
        digest = outcome_digest({**row, "reward": reward})
        with database.write() as connection:
            connection.execute(update(outcome).where(outcome.c.sequence == row["sequence"]).values(digest=digest))

    with_campaign(database, play)
    found = []
    for at, reward in ((0, -0.0), (1, 1.0)):
        store(at, reward)
        with database.read() as connection:
            checks = verify(connection, "c")["checks"]
        found.append(next(check["found"] for check in checks if check["name"] == "damaged outcomes"))
    assert found == [0, 1]


@pytest.mark.parametrize(("missing_cost", "spent"), [("hold", ONE), ("none", 0)])
@pytest.mark.parametrize("rewarded", [False, True])
def test_expiry_books_the_hold_or_frees_it(database, missing_cost, spent, rewarded):
    async def play(engine):
        await decided(engine)
        if rewarded:
            await report(engine, reward=1.0)
        make_holds_due(database)
        await engine.submit(Expire())

    with_campaign(database, play, feedback={"missing_cost": missing_cost})
    assert accounts(database) == (10 * ONE, 0, spent, 0)
    last = rows(database, tables.outcome)[-1]
    assert (last["kind"], last["status"]) == ("expired", "expired")
    assert last["taught"] is not None
    assert rows(database, tables.hold) == []


def test_expiry_teaches_nothing_where_a_missing_reward_is_null(database):
    async def play(engine):
        await decided(engine)
        make_holds_due(database)
        await engine.submit(Expire())

    with_campaign(database, play, feedback={"missing_reward": None})
    assert rows(database, tables.outcome)[-1]["taught"] is None
    assert accounts(database) == (10 * ONE, 0, ONE, 0)


def test_expiry_of_a_charged_decision_settles_it_with_the_missing_reward(database):
    async def play(engine):
        await decided(engine)
        await report(engine, costs={"usd": 0.5})
        make_holds_due(database)
        await engine.submit(Expire())

    with_campaign(database, play)
    last = rows(database, tables.outcome)[-1]
    assert (last["status"], last["reward"], last["taught"] is not None) == ("settled", 0.0, True)
    assert accounts(database) == (10 * ONE, 0, ONE // 2, 0)


@pytest.mark.parametrize("way", ["expired", "voided"])
def test_costs_after_expiry_or_void_are_booked_and_teach_nothing(database, way):
    async def play(engine):
        await decided(engine)
        if way == "voided":
            await report(engine, void=True)
        else:
            make_holds_due(database)
            await engine.submit(Expire())
        late = await report(engine, reward=1.0, costs={"usd": 0.25, "impressions": 0})
        again = await report(engine, reward=1.0, costs={"usd": 0.25, "impressions": 0})
        return late, again

    late, again = with_campaign(database, play)
    assert (late.body["status"], late.body["learned"]) == ("late", False)
    assert late.body["warnings"] == ["late_not_learnt"]
    assert again.replayed
    assert again.body == late.body
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)


def test_late_costs_lower_nothing_that_an_adjustment_has_lowered_before(database):
    async def play(engine):
        await decided(engine)
        make_holds_due(database)
        await engine.submit(Expire())
        await engine.submit(Adjust("c", "usd", -1, "never shown"))
        with pytest.raises(Conflict) as refused:
            await report(engine, costs={"usd": 0.25, "impressions": 1})
        assert (refused.value.kind, accounts(database)) == ("negative-spent", (10_000_000, 0, 0, 0))
        await engine.submit(Adjust("c", "usd", 1, "shown"))
        return await report(engine, costs={"usd": 0.25, "impressions": 1})

    assert with_campaign(database, play).body["status"] == "late"
    assert accounts(database) == (10_000_000, 0, 250_000, 0)
    with database.read() as connection:
        assert verify(connection, "c")["ok"]


def test_the_same_half_again_gets_the_same_answer(database):
    async def play(engine):
        await decided(engine)
        first = await report(engine, costs={"usd": 0.25, "impressions": 0})
        again = await report(engine, costs={"usd": 0.25, "impressions": 0})
        both = await report(engine, reward=1.0)
        repeat = await report(engine, reward=1.0, costs={"usd": 0.25, "impressions": 0})
        return first, again, both, repeat

    first, again, both, repeat = with_campaign(database, play)
    assert again.replayed
    assert again.body == first.body
    assert repeat.replayed
    assert repeat.body == both.body
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)


def test_a_half_that_was_repeated_with_the_other_gets_its_own_answer_again(database):
    async def play(engine):
        await decided(engine)
        alone, both = {"costs": {"usd": 0.25}}, {"costs": {"usd": 0.25}, "reward": 1.0}
        first = [await report(engine, **alone), await report(engine, **both)]
        return first, [await report(engine, **alone), await report(engine, **both)]

    first, again = with_campaign(database, play)
    assert [answer.body["status"] for answer in first] == ["charged", "settled"]
    assert [answer.body for answer in again] == [answer.body for answer in first]
    assert all(answer.replayed for answer in again)


def test_a_reward_after_a_charged_decision_has_expired_is_logged_and_not_learnt(database):
    async def play(engine):
        await decided(engine)
        await report(engine, costs={"usd": 0.25})
        make_holds_due(database)
        await engine.submit(Expire())
        return [await report(engine, reward=1.0), await report(engine, reward=1.0)]

    late, again = with_campaign(database, play)
    assert (late.body["status"], late.body["learned"], late.body["warnings"]) == ("late", False, ["late_not_learnt"])
    assert (again.body, again.replayed) == (late.body, True)
    taught = [row["taught"] for row in rows(database, tables.outcome)]
    assert taught == ["[null,250000,1000000]", "[0.0,250000,1000000]", None]
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)


@pytest.mark.parametrize("other", [{"costs": {"usd": 0.3}}, {"reward": 0.75}])
def test_another_value_for_the_same_half_is_a_conflict(database, other):
    async def play(engine):
        await decided(engine)
        await report(engine, reward=0.5, costs={"usd": 0.25})
        with pytest.raises(Conflict):
            await report(engine, **other)

    with_campaign(database, play)
    assert accounts(database) == (10 * ONE, 0, ONE // 4, 0)


def test_a_cost_above_its_hold_is_booked_in_full_and_stops_the_campaign(database):
    async def play(engine):
        await decided(engine)
        excess = await report(engine, reward=1.0, costs={"usd": 12, "impressions": 0})
        after = await engine.submit(Decide("c", "d2", [0.5, 0.5]))
        corrected = await engine.submit(Adjust("c", "usd", -11.5, "typing mistake"))
        return excess.body, after.body, corrected.body

    excess, after, corrected = with_campaign(database, play)
    assert excess["warnings"] == ["cost_above_hold"]
    assert (after["arm"], after["reason"], after["probability"]) == (None, "budget_exhausted", 1.0)
    assert corrected == {"campaign_id": "c", "resource": "usd", "spent": 0.5, "overrun": 0, "free": 9.5}
    assert accounts(database) == (10 * ONE, 0, ONE // 2, 0)


def test_a_reward_out_of_range_is_clipped_and_a_cost_below_a_millionth_rounded_up(database):
    async def play(engine):
        await decided(engine)
        return (await report(engine, reward=3.0, costs={"usd": 0.1000001, "impressions": 0})).body

    body = with_campaign(database, play)
    assert sorted(body["warnings"]) == ["reward_clipped", "rounded"]
    assert accounts(database) == (10 * ONE, 0, 100_001, 0)


@pytest.mark.parametrize(("missing_cost", "impressions"), [("hold", ONE), ("none", 0)])
@pytest.mark.parametrize("way", ["held", "expired", "voided"])
def test_a_resource_left_out_of_costs_is_booked_as_missing_and_an_empty_report_costs_nothing(
    database, missing_cost, impressions, way
):
    async def play(engine):
        await decided(engine)
        await decided(engine, "d2")
        for name in ("d1", "d2"):
            if way == "voided":
                await report(engine, name, void=True)
        if way == "expired":
            make_holds_due(database)
            await engine.submit(Expire())
        some, none = await report(engine, costs={"usd": 0.25}), await report(engine, "d2", costs={})
        return some.body["warnings"], none.body["warnings"]

    some, none = with_campaign(database, play, feedback={"missing_cost": missing_cost})
    late = [] if way == "held" else ["late_not_learnt"]
    assert (some, none) == (["cost_missing", *late], late)
    assert accounts(database)[1:] == (0, ONE // 4, 0)
    assert accounts(database, resource=1)[1:] == (0, impressions, 0)
    with database.read() as connection:
        assert verify(connection, "c")["ok"]
    if way != "expired":  # its holds were made due by hand
        assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_report_of_some_costs_again_gets_the_same_answer_after_the_terms_have_changed(database):
    async def play(engine):
        await decided(engine)
        first = await report(engine, costs={"usd": 0.25})
        await engine.submit(PatchCampaign("c", {"feedback": {"missing_cost": "none"}}))
        again = await report(engine, costs={"usd": 0.25})
        with pytest.raises(Conflict):
            await report(engine, costs={})
        with pytest.raises(Conflict):
            await report(engine, costs={"usd": 0.25, "impressions": 0})
        return first, again, await report(engine, costs={"usd": 0.25, "impressions": 1})

    first, again, whole = with_campaign(database, play)
    assert (again.body, again.replayed) == (first.body, True)
    assert (whole.body, whole.replayed) == (first.body, True)
    assert accounts(database, resource=1)[1:] == (0, ONE, 0)


@pytest.mark.parametrize("first", ["reward", "costs"])
def test_a_clipped_reward_is_a_warning_to_the_caller_who_sent_it(database, first):
    halves = {"reward": {"reward": 2.0}, "costs": {"costs": {"usd": 0.25, "impressions": 1}}}

    async def play(engine):
        await decided(engine)
        order = [first, *({*halves} - {first})]
        return {half: (await report(engine, **halves[half])).body["warnings"] for half in order}

    assert with_campaign(database, play) == {"reward": ["reward_clipped"], "costs": []}


def test_feedback_on_a_null_decision_is_ignored_if_it_costs_nothing(database):
    async def play(engine):
        answer = await engine.submit(Decide("c", "n", [0.5, 0.5], exclude=("a", "b")))
        ignored = await report(engine, "n", reward=1.0, costs={})
        with pytest.raises(Invalid):
            await report(engine, "n", costs={"usd": 1})
        return answer.body, ignored.body

    answer, ignored = with_campaign(database, play)
    assert (answer["arm"], answer["reason"], answer["hold"], answer["expires_at"]) == (None, "all_excluded", {}, None)
    assert (ignored["status"], ignored["learned"]) == ("ignored", False)


def test_feedback_for_an_unknown_decision_or_resource_is_refused(database):
    async def play(engine):
        await decided(engine)
        with pytest.raises(NotFound):
            await report(engine, "unheard-of", reward=1.0)
        with pytest.raises(Invalid):
            await report(engine, costs={"roubles": 1})

    with_campaign(database, play)
    assert accounts(database) == (10 * ONE, ONE, 0, 0)


def test_an_outcome_that_would_spoil_the_model_is_booked_and_not_learnt_and_those_beside_it_are(database, monkeypatch):
    def is_finite(policy, state):
        """Not after the outcome of the context [0.9, 0.9]: its square is 0.81, those of the others are 0.1 together."""
        ridge = policy.regressor.ridge
        return all(gram[0, 0, 0] < ridge + 0.5 for gram in state.oracle.gram)

    monkeypatch.setattr("cbwk_core.SquareCBwK.is_finite", is_finite)

    async def play(engine):
        contexts = {"good": [0.1, 0.2], "bad": [0.9, 0.9], "fine": [0.3, 0.4]}
        await engine.submit_together([Decide("c", name, context) for name, context in contexts.items()])
        costs = {"usd": 0.5, "impressions": 1}
        return await engine.submit_together([Feedback("c", name, reward=1, costs=costs) for name in contexts])

    answers = with_campaign(database, play)
    assert [answer.body["learned"] for answer in answers] == [True, False, True]
    assert [answer.body["status"] for answer in answers] == ["settled"] * 3
    assert [answer.body["policy_version"] for answer in answers] == [1, 1, 2]
    assert accounts(database)[1:3] == (0, 3 * ONE // 2)
    assert [row["taught"] is not None for row in rows(database, tables.outcome)] == [True, False, True]
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None
