"""Which replica a client asks, by the rules alone: affinity, what follows a failure, cells."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_client import AsyncClient, Client, Report, Terms, TimedOutError, calls
from cbwk_client.outbox import Outbox
from cbwk_client.replicas import REST_SECONDS_MAX, Replicas, cell_of, ranked, read_cells
from cbwk_client.steps import Reply, call_steps
from tests.client.test_rules import DECISION, REFUSED_CONNECTION, SILENCE, Clock, Service, carry_out, problem

URLS = ("http://one", "http://two", "http://three")
CAMPAIGNS = [f"campaign-{number}" for number in range(3_000)]
DECIDED = Reply(200, orjson.dumps(DECISION))


def decided(clock, replicas, network, *, campaign_id="c", seconds=0.1):
    call = calls.decide(campaign_id, calls.Ask([0.5]).body())
    return carry_out(call_steps(call, seconds, clock, lambda: 0.0, replicas, 1.0), clock, network)


def network_of(sent, moods):
    """A network in which each address has its mood, by default well; `sent` gets every step."""

    def network(step):
        sent.append(step)
        return moods.get(step.url, (DECIDED, 0.001))

    return network


def test_campaigns_are_spread_evenly_and_a_new_address_takes_over_only_its_own():
    before = {name: ranked(name, URLS)[0] for name in CAMPAIGNS}
    after = {name: ranked(name, (*URLS, "http://four"))[0] for name in CAMPAIGNS}
    # Four standard deviations of a binomial distribution around an even share.
    assert all(abs(number - 1_000) < 4 * (3_000 * 2 / 9) ** 0.5 for number in Counter(before.values()).values())
    moved = {name for name in CAMPAIGNS if before[name] != after[name]}
    assert {after[name] for name in moved} == {"http://four"}
    assert abs(len(moved) - 750) < 4 * (3_000 * 3 / 16) ** 0.5


@given(st.permutations(URLS), st.text(max_size=20))
def test_the_order_of_the_addresses_does_not_matter(urls, name):
    assert ranked(name, urls) == ranked(name, URLS)


def test_a_call_goes_on_to_every_replica_at_once_with_the_same_id_and_says_its_campaign():
    clock, sent = Clock(), []
    first, second, third = ranked("c", URLS)
    moods = {first: (REFUSED_CONNECTION, 0.0), second: (problem("queue-full", 503), 0.001)}
    assert decided(clock, Replicas(URLS, None, clock), network_of(sent, moods)).arm == "a"
    assert [step.url for step in sent] == [first, second, third]
    assert clock.now == pytest.approx(100.002)
    assert len({step.content for step in sent}) == 1
    assert {step.campaign_id for step in sent} == {"c"}


def test_a_frozen_replica_costs_one_call_a_part_of_its_time_and_the_next_ones_nothing():
    clock, sent = Clock(), []
    replicas = Replicas(URLS, None, clock)
    first, second, _ = ranked("c", URLS)
    network = network_of(sent, {first: (SILENCE, 9)})
    decided(clock, replicas, network, seconds=0.09)
    assert clock.now == pytest.approx(100.046)
    decided(clock, replicas, network, seconds=0.09)
    assert clock.now == pytest.approx(100.047)
    assert [step.url for step in sent] == [first, second, second]
    clock.now += 60
    decided(clock, replicas, network, seconds=30)
    assert clock.now == pytest.approx(100.047 + 60 + 1.001)  # one attempt takes at most try_seconds


def test_a_replica_that_recovers_gets_its_campaigns_back_and_until_then_is_tried_ever_more_rarely():
    clock, sent = Clock(), []
    replicas = Replicas(URLS, None, clock)
    first, second, _ = ranked("c", URLS)
    moods = {first: (REFUSED_CONNECTION, 0.0)}
    network = network_of(sent, moods)
    while clock.now < 160:
        decided(clock, replicas, network)
    # 0.1, 0.2, … 3.2 seconds, then five: 6 + 1 attempts in 6.3 seconds, and one every five seconds.
    assert sum(step.url == first for step in sent) == 7 + (60 - 6.3) // REST_SECONDS_MAX
    assert {step.url for step in sent} == {first, second}
    del moods[first]
    clock.now += REST_SECONDS_MAX
    sent.clear()
    for _ in range(5):
        decided(clock, replicas, network)
    assert {step.url for step in sent} == {first}


def test_attempts_that_began_before_a_failure_was_noticed_count_as_one():
    clock = Clock()
    replicas = Replicas(URLS, None, clock)
    began_at, first = clock.now, ranked("c", URLS)[0]
    clock.now += 0.05
    for _ in range(50):
        replicas.note(first, began_at, is_well=False)
    clock.now += 0.21  # four times what the failure took
    assert replicas.choose(ranked("c", URLS), ()) == first
    assert replicas.choose(ranked("c", URLS), ()) != first  # one request tries it


def test_what_cannot_be_repeated_is_sent_to_another_replica_only_if_it_was_not_sent():
    for what, attempts in ((REFUSED_CONNECTION, 2), (SILENCE, 1)):
        clock, sent = Clock(), []
        first = ranked("c", URLS)[0]
        made = Reply(201, orjson.dumps({"id": "c", "version": 1, "status": "active", "config": {}}))
        moods = dict.fromkeys(URLS, (made, 0.001)) | {first: (what, 0.1)}
        steps = call_steps(calls.create_campaign({"id": "c"}), 30, clock, lambda: 0.0, Replicas(URLS, None, clock), 1.0)
        if attempts == 2:
            assert carry_out(steps, clock, network_of(sent, moods)).version == 1
        else:
            with pytest.raises(TimedOutError):
                carry_out(steps, clock, network_of(sent, moods))
        assert len(sent) == attempts


def test_a_limit_of_the_key_is_not_circumvented_at_another_replica():
    clock, sent = Clock(), []
    first = ranked("c", URLS)[0]
    limited = Reply(429, problem("too-many-requests", 429).content, retry_after_seconds=1.0)
    answers = [(limited, 0.001), (DECIDED, 0.001)]

    def network(step):
        sent.append(step.url)
        return answers.pop(0)

    decided(clock, Replicas(URLS, None, clock), network, seconds=5)
    assert sent == [first, first]
    assert clock.now == pytest.approx(101.002)


def test_reports_of_a_campaign_go_together_to_its_replica_and_wait_for_no_other_campaign():
    clock, sent = Clock(), []
    replicas = Replicas(URLS, None, clock)
    names = CAMPAIGNS[:20]
    frozen = ranked(names[0], URLS)[0]
    outbox = Outbox(Terms(close_seconds=60), clock, lambda: 0.0, replicas)
    for turn in range(3):
        for name in names:
            outbox.add(Report(name, f"{name}-{turn}", reward=1))
    outbox.close()
    service, arrived = Service([]), {}

    def network(step):
        sent.append(step)
        if step.url == frozen:
            return SILENCE, 9
        arrived[step.campaign_id] = clock.now
        return service(step)

    carry_out(outbox.delivery(), clock, network)
    assert outbox.undelivered() is None
    assert len(service.taken) == 60
    for step in sent:
        assert {item["campaign_id"] for item in orjson.loads(step.content)["items"]} == {step.campaign_id}
    assert {step.url for step in sent if ranked(step.campaign_id, URLS)[0] != frozen}.isdisjoint({frozen})
    assert max(arrived.values()) < 102  # one attempt at the frozen replica, and the rest at once


def test_a_campaign_that_is_refused_for_a_while_does_not_hold_up_the_reports_of_others():
    clock = Clock()
    outbox = Outbox(Terms(close_seconds=60), clock, lambda: 0.0, Replicas(URLS[0], None, clock))
    for name in ("busy", "other"):
        outbox.add(Report(name, name, reward=1))
    outbox.close()
    arrived = {}

    def network(step):
        if step.campaign_id == "busy" and clock.now < 103:
            return problem("campaign-busy", 503), 0.5
        arrived[step.campaign_id] = clock.now
        return Service([])(step)

    carry_out(outbox.delivery(), clock, network)
    assert arrived["other"] <= 100.5
    assert 103 <= arrived["busy"] < 106


def test_the_map_of_cells_is_that_of_haproxy(tmp_path):
    file = tmp_path / "cells.map"
    file.write_text("# campaign cell\n* north\n\nsummer  south\nacme: south\nsummer north\n", encoding="utf-8")
    cells = read_cells(file)
    assert cells == {"*": "north", "summer": "south", "acme:": "south"}
    assert {name: cell_of(name, cells) for name in ("summer", "summer-2", "acme:spring", "acme-2:spring")} == {
        "summer": "south",
        "summer-2": "north",
        "acme:spring": "south",
        "acme-2:spring": "north",
    }
    file.write_text("* north and more\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1"):
        read_cells(file)


def test_a_campaign_is_asked_for_in_its_cell_and_nowhere_else():
    clock, sent = Clock(), []
    replicas = Replicas({"north": URLS[:2], "south": URLS[2]}, {"*": "north", "summer": "south"}, clock)
    network = network_of(sent, {URLS[0]: (REFUSED_CONNECTION, 0.0), URLS[1]: (REFUSED_CONNECTION, 0.0)})
    assert decided(clock, replicas, network, campaign_id="summer").arm == "a"
    assert {step.url for step in sent} == {URLS[2]}
    sent.clear()
    with pytest.raises(Exception, match="refused"):
        decided(clock, replicas, network, campaign_id="spring")
    assert {step.url for step in sent} == set(URLS[:2])


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("urls", "cells", "message"),
    [
        ([], None, "at least one url"),
        ({"north": "http://one"}, None, "given together"),
        (["http://one"], {"*": "north"}, "given together"),
        ({"north": "http://one"}, {"summer": "north"}, "must have a default"),
        ({"north": "http://one"}, {"*": "south"}, "no other cells than north"),
        (["http://one", "two"], None, "must be http"),
    ],
)
def test_addresses_and_cells_that_do_not_fit_are_refused_when_the_client_is_made(kind, urls, cells, message):
    with pytest.raises(ValueError, match=message):
        kind(urls, "k" * 32, cells=cells)


def test_with_cells_a_batch_of_several_campaigns_is_refused_and_not_split():
    cells = {"north": "http://127.0.0.1:9", "south": "http://127.0.0.1:9"}
    with (
        Client(cells, "k" * 32, cells={"*": "north"}) as client,
        pytest.raises(ValueError, match="of one campaign"),
    ):
        client.feedback_batch([Report("a", "1", reward=1), Report("b", "1", reward=1)])


class Running(Clock):
    """A clock that moves on at every reading, as real ones do."""

    def __call__(self):
        self.now += 1e-6
        return super().__call__()


def test_a_void_that_waits_alone_is_sent_as_soon_as_it_is_due():
    clock = Running()
    outbox = Outbox(Terms(server_deadline_seconds=2), clock, lambda: 0.0, Replicas(URLS[0], None, clock))
    outbox.void_later("c", ["late"])
    clock.now += 2
    assert "late" in next(outbox.delivery()).content.decode()
