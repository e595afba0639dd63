"""Which address is asked about which campaign: cells, rendezvous hashing, and how the addresses do.

An affinity is a hint: every replica answers every campaign of its cell, and a wrong choice only takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Final

# How long other addresses are asked instead of one that failed. It doubles with every further failure, and it is a
# multiple of the time that the failure took: waiting for a frozen replica takes at most a fifth of a caller's time.
REST_SECONDS_MIN: Final = 0.1
REST_PER_FAILURE: Final = 4.0
REST_SECONDS_MAX: Final = 5.0
DEFAULT: Final = "*"  # the key of the map for campaigns that it does not name

Addresses = str | Sequence[str] | Mapping[str, str | Sequence[str]]
Cells = str | PathLike[str] | Mapping[str, str]


def ranked(campaign_id: str, urls: Sequence[str]) -> Sequence[str]:
    """Return the addresses in the order in which they are asked about a campaign (rendezvous hashing).

    The order depends on the texts alone, so all clients agree; a new address takes over only campaigns of its own.

    >>> [ranked(name, ["http://a", "http://b", "http://c"])[0] for name in ("spring", "summer", "autumn", "winter")]
    ['http://c', 'http://a', 'http://b', 'http://c']
    """
    if len(urls) == 1:
        return urls
    return sorted(urls, key=lambda url: blake2b(f"{url} {campaign_id}".encode(), digest_size=8).digest())


def cell_of(campaign_id: str, cells: Mapping[str, str]) -> str:
    """Return the cell of a campaign: by its id, else by the part before its first colon, else the default.

    >>> cells = {"*": "north", "summer": "south", "acme:": "south"}
    >>> [cell_of(name, cells) for name in ("summer", "acme:spring", "acme", "spring")]
    ['south', 'south', 'south', 'north']
    """
    portfolio = campaign_id.partition(":")[0] + ":"
    return cells.get(campaign_id) or cells.get(portfolio) or cells[DEFAULT]


def read_cells(cells: Cells) -> Mapping[str, str]:
    """Return a map of cells, from a mapping or from the map file of HAProxy: a key and a cell on every line."""
    if isinstance(cells, Mapping):
        return dict(cells)
    found: dict[str, str] = {}
    for number, line in enumerate(Path(cells).read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ValueError(f"{cells}, line {number}: must be a campaign and its cell")
        found.setdefault(words[0], words[1])  # HAProxy, too, takes the first
    return found


@dataclass(slots=True)
class _Health:
    failures: int = 0  # since the last answer
    failed_at: float = -math.inf
    rest_seconds: float = 0.0
    rests_until: float = -math.inf


class Replicas:
    """The addresses of the service and how they do; several threads may use it.

    Health is noticed in passing: an address that fails rests, and then one request tries whether it is back.
    """

    def __init__(self, addresses: Addresses, cells: Cells | None, clock: Callable[[], float]) -> None:
        named = isinstance(addresses, Mapping)
        if named != (cells is not None):
            raise ValueError("addresses by cell and the map of cells must be given together")
        given = addresses if isinstance(addresses, Mapping) else {"": addresses}
        self._urls = {name: _as_urls(urls) for name, urls in given.items()}
        self._cells = {DEFAULT: ""} if cells is None else read_cells(cells)
        if DEFAULT not in self._cells or not set(self._cells.values()) <= set(self._urls):
            known = ", ".join(sorted(self._urls))
            raise ValueError(f"the map of cells must have a default, {DEFAULT!r}, and no other cells than {known}")
        self._clock = clock
        self._lock = Lock()
        self._health = {url: _Health() for urls in self._urls.values() for url in urls}

    @property
    def urls(self) -> Collection[str]:
        """Every address."""
        return self._health.keys()

    def of(self, campaign_id: str | None) -> Sequence[str]:
        """Return the addresses that answer for a campaign, the preferred one first; without one, for the default."""
        urls = self._urls[cell_of(campaign_id or "", self._cells)]
        return urls if campaign_id is None else ranked(campaign_id, urls)

    def check_together(self, campaign_ids: Collection[str]) -> None:
        """Raise a ValueError if one request cannot be about these campaigns, because there are cells."""
        if len(campaign_ids) > 1 and len(self._urls) > 1:
            raise ValueError("with several cells, all reports of a batch must be of one campaign")

    def choose(self, urls: Sequence[str], asked: Collection[str]) -> str:
        """Return the first address that does well and was not asked; else the one whose rest ends first."""
        if len(urls) == 1:
            return urls[0]
        left = [url for url in urls if url not in asked] or urls
        now = self._clock()
        with self._lock:
            chosen = min(left, key=lambda url: max(self._health[url].rests_until, now))
            health = self._health[chosen]
            if health.failures:  # this request tries whether it is back; others do not wait for what it finds
                health.rests_until = now + health.rest_seconds
        return chosen

    def note(self, url: str, began_at: float, *, is_well: bool) -> None:
        """Take in how an attempt ended; what began before the last failure says nothing new."""
        with self._lock:
            health = self._health[url]
            if began_at < health.failed_at or (is_well and not health.failures):
                return
            if is_well:
                self._health[url] = _Health()
            else:
                now = self._clock()
                rest = max(REST_SECONDS_MIN * 2.0 ** min(health.failures, 10), REST_PER_FAILURE * (now - began_at))
                rest = min(rest, REST_SECONDS_MAX)
                self._health[url] = _Health(health.failures + 1, now, rest, now + rest)


def _as_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    found = (urls,) if isinstance(urls, str) else tuple(urls)
    if not found:
        raise ValueError("there must be at least one url")
    return tuple(dict.fromkeys(url.rstrip("/") for url in found))
