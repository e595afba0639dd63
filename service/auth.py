"""API keys: their holders, their permissions, and the first admin key."""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, inf
from pathlib import Path
from threading import Lock
from typing import TextIO, TypeVar

import structlog

from service.problems import Forbidden, NotFound, TooManyRequests, Unauthorized
from service.store.database import Database
from service.store.errors import DatabaseError
from service.store.keys import StoredKey, can_be_key, create_key, find_key, key_digests, usable_admin_keys
from service.words import no_such

CACHE_SECONDS_MAX = 3.0  # a revoked key is still accepted for at most this long
UNKNOWN_SECONDS_MAX = 1.0  # a new key is refused for at most this long
CACHED_KEYS_MAX = 10_000
TIME_TOLERANCE_SECONDS = 1e-6  # of sums of 1 / rate
# Unknown keys that are looked for one by one; further ones in the same second are compared with a list of all keys.
GUESSES_PER_SECOND_MAX = 20
KEY_LENGTH_MAX = 512
REFUSED_SECONDS = 10.0  # at most one line of the log in this time is about refused keys
ADMIN_KEY_LENGTH_MIN = 32

log = structlog.get_logger(__name__)

Name = TypeVar("Name")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a valid key."""

    key_id: str
    name: str
    role: str
    campaigns: frozenset[str] | None  # None: all
    requests_per_second: float | None = None  # None: any number

    def check_campaign(self, campaign_id: str) -> None:
        """Raise NotFound, as if there were no such campaign, where the key may not see it."""
        if self.campaigns is not None and campaign_id not in self.campaigns:
            raise NotFound(no_such("campaign", campaign_id), kind="campaign-not-found")

    @property
    def limited(self) -> bool:
        """Whether the key is limited to campaigns; it then has no access to anything that concerns all of them."""
        return self.campaigns is not None


def checked_role(principal: Principal | None, role: str) -> Principal:
    """Return the holder of a key if the key is valid and has the role; an admin key has all roles."""
    if principal is None:
        raise Unauthorized("the key is not valid, or not any more")
    if principal.role not in (role, "admin"):
        raise Forbidden(f"this needs a key with the role {role}", kind="role-missing")
    return principal


ENVIRONMENT_ADMIN = Principal("environment", "CBWK_ADMIN_KEY", "admin", None)


class KeyRing:
    """Finds the holder of a key and caches the result for a few seconds.

    `remembered` reads only the cache and may be called in the event loop; `lookup` may query the database.
    """

    def __init__(
        self,
        database: Database,
        admin_key: str | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cached_max: int = CACHED_KEYS_MAX,
    ) -> None:
        if admin_key is not None and not ADMIN_KEY_LENGTH_MIN <= len(admin_key) <= KEY_LENGTH_MAX:
            raise ValueError(f"the admin key must have {ADMIN_KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} characters")
        self._database = database
        self._admin_digest = None if admin_key is None else key_digest(admin_key)
        self._clock = clock
        self._cached_max = cached_max
        self._lock = Lock()
        # By digest, with the time of expiry. There are two caches, so that guessed keys cannot evict valid ones.
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        # By key id, for keys with a rate: the time at which all requests so far would have come at an even pace.
        self._paced_until: OrderedDict[str, float] = OrderedDict()
        self._guesses, self._guesses_until = 0, -inf
        self._listing = Lock()
        self._listed: tuple[float, frozenset[bytes]] = -inf, frozenset()  # when all keys were read, and their digests
        self._forgot_at = -inf
        self._refused, self._refused_until = 0, -inf

    def lookup(self, text: str) -> Principal | None:
        """Return the holder of the key, or None if the key is not valid."""
        certain, principal = self.remembered(text)
        if certain:
            return principal
        # The clock is read before the query: its result may be outdated from then on.
        queried, digest = self._clock(), key_digest(text)
        listed = self._missing_since(digest, queried)
        if listed is not None:
            return self._remember(digest, listed, None)
        with self._database.read() as connection:
            stored = find_key(connection, text)
        return self._remember(digest, queried, stored)

    def _missing_since(self, digest: bytes, now: float) -> float | None:
        """When the list of all keys was read, if many keys of this second are unknown and the list lacks this one.

        The list is read at most once a second, so that guesses do not keep the database busy.
        """
        with self._lock:
            flooded = now < self._guesses_until and self._guesses >= GUESSES_PER_SECOND_MAX
            if not flooded or digest in self._known:
                return None
        with self._listing:  # one thread reads, the others wait for it
            read_at, digests = self._listed
            if now >= read_at + UNKNOWN_SECONDS_MAX or read_at <= self._forgot_at:
                with self._database.read() as connection:
                    self._listed = read_at, digests = now, key_digests(connection)
        return None if digest in digests else read_at

    def remembered(self, text: str) -> tuple[bool, Principal | None]:
        """Return whether the cache knows the key, and its holder, None if the key is not valid."""
        if len(text) > KEY_LENGTH_MAX:
            return True, None
        digest = key_digest(text)
        if self._admin_digest is not None and hmac.compare_digest(digest, self._admin_digest):
            return True, ENVIRONMENT_ADMIN
        now = self._clock()
        with self._lock:
            until, principal = self._known.get(digest, (now, None))
            if now < until:
                return True, principal
            return now < self._unknown.get(digest, now) or not can_be_key(text), None

    def count_request(self, principal: Principal) -> None:
        """Raise TooManyRequests if the key has made its requests of this second; in the event loop.

        A key that was idle may make the requests of one second at once, and always one. Each process counts for itself.
        """
        rate = principal.requests_per_second
        if rate is None:
            return
        now = self._clock()
        until = max(self._paced_until.get(principal.key_id, now), now)
        early = until - now - max(0.0, 1.0 - 1.0 / rate)
        if early > TIME_TOLERANCE_SECONDS:
            raise TooManyRequests(rate, ceil(early))
        _put(self._paced_until, principal.key_id, until + 1.0 / rate, self._cached_max)

    def note_refusal(self, request: str) -> None:
        """Log that a key was refused: the first one, then one line in ten seconds with the number of refusals since."""
        with self._lock:
            self._refused += 1
            now = self._clock()
            if now < self._refused_until:
                return
            count, self._refused = self._refused, 0
            self._refused_until = now + REFUSED_SECONDS
        log.warning("a key was refused", count=count, request_id=request)

    def forget(self) -> None:
        """Clear the cache, after a key was created or revoked in this process."""
        with self._lock:
            self._known.clear()
            self._unknown.clear()
            self._forgot_at = self._clock()

    def _remember(self, digest: bytes, queried: float, stored: StoredKey | None) -> Principal | None:
        with self._lock:
            if stored is None:
                self._known.pop(digest, None)
                if queried >= self._guesses_until:
                    self._guesses, self._guesses_until = 0, queried + UNKNOWN_SECONDS_MAX
                self._guesses += 1
                _put(self._unknown, digest, queried + UNKNOWN_SECONDS_MAX, self._cached_max)
                return None
            principal = Principal(stored.id, stored.name, stored.role, stored.campaigns, stored.requests_per_second)
            _put(self._known, digest, (queried + CACHE_SECONDS_MAX, principal), self._cached_max)
            return principal


def key_digest(text: str) -> bytes:
    """Return the digest by which a key is stored; any text that a client sends has one, also lone surrogates."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _put(cache: OrderedDict[Name, Value], name: Name, value: Value, entries_max: int) -> None:
    cache[name] = value
    cache.move_to_end(name)
    if len(cache) > entries_max:
        cache.popitem(last=False)


def bootstrap_admin_key(database: Database, *, admin_key: str | None, stderr: TextIO) -> None:
    """Create the first admin key, unless CBWK_ADMIN_KEY is set or there is an admin key.

    The key is printed if stderr is a terminal; otherwise it is written to the file `admin.key` beside the SQLite file
    or in `data/`. If several replicas start at once, one of them creates the key.
    """
    if admin_key is not None:
        return
    with database.write() as connection:
        database.lock_replicas(connection)
        if usable_admin_keys(connection):
            return
        now = database.now_micros(connection)
        _, text = create_key(connection, "first admin", "admin", None, now, actor="first start")
        if not stderr.isatty():
            # The file is written before the commit: an invalid key in a file does no harm, a lost valid key does.
            path = (Path("data") if database.path is None else database.path.parent) / "admin.key"
            _write_secret(path, text)
            message = f"cbwk: the first admin key is in {path}"
        else:
            message = f"cbwk: the first admin key, shown only now: {text}"
    stderr.write(message + "\n")
    stderr.flush()


def _write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, completely or not at all."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise DatabaseError(
            f"cannot write the first admin key to {path}: {error.strerror}; or set CBWK_ADMIN_KEY"
        ) from error
