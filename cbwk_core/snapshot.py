"""State ↔ bytes, without pickle: reading a snapshot runs no code and builds nothing but what the template shows.

    SnapshotError (a ValueError)
    ├── UnencodableError      a state holds something the format has no place for
    ├── NotASnapshotError     other data, or data cut off before the end of the preamble
    ├── UnknownVersionError   written by a format this code does not know
    ├── BadChecksumError      damaged or truncated
    ├── ForeignSnapshotError  sound, but of another configuration
    └── MismatchError         sound, but its leaves are not those of the template

A state is a nesting of NamedTuples, tuples, None, numpy arrays (float64, int64, bool) and Python ints, floats, bools
and strings. Its bytes are:

    preamble   b"CBWK", format version (uint16), length of the header (uint32), all little-endian
    header     JSON: the fingerprint, and the list of [path, kind, shape] of all parts in the order of the state
    leaves     raw little-endian bytes, each starting at a multiple of 8
    checksum   blake2b, 16 bytes, of everything before

Equal states give equal bytes, bit for bit, so snapshots can be compared and named by their digest. The checksum guards
against damage, not against forgery, so what it covers is still checked piece by piece.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

import numpy as np

State = TypeVar("State")

MAGIC = b"CBWK"
VERSION = 1
# States are a few levels deep; a forged header could otherwise nest tuples until the interpreter's stack ends.
DEPTH_MAX = 32

_PREAMBLE = struct.Struct("<4sHI")
_FLOAT = struct.Struct("<d")
_ALIGNMENT = 8
CHECKSUM_BYTES = 16
_SHOWN_LENGTH_MAX = 40
_ROOT = "state"
# What an array's elements are called in the header: numpy's name, which states size and byte order.
_ARRAY_KINDS = {np.dtype(np.float64): "<f8", np.dtype(np.int64): "<i8", np.dtype(np.bool): "|b1"}
_NATIVE_DTYPES = {kind: dtype for dtype, kind in _ARRAY_KINDS.items()}
_KINDS: dict[str, set[type]] = {
    "tuple": {tuple},
    "int": {int, np.int64},
    "float": {float, np.float64},
    "bool": {bool, np.bool},
    "str": {str},
}
_SCALAR_BYTES = {"none": 0, "bool": 1, "float": _FLOAT.size}
# Numpy's own limits.
_AXES_MAX = 64
_LENGTH_MAX = 2**63 - 1


class SnapshotError(ValueError):
    """A state cannot be written, or bytes cannot be read as the state that was asked for."""


class UnencodableError(SnapshotError):
    """The state holds something the format has no place for."""


class NotASnapshotError(SnapshotError):
    """The bytes do not begin like a snapshot."""


class UnknownVersionError(SnapshotError):
    """The bytes were written by a format this code does not know."""


class BadChecksumError(SnapshotError):
    """The bytes are not those that were written."""


class ForeignSnapshotError(SnapshotError):
    """The snapshot is of another configuration."""


class MismatchError(SnapshotError):
    """The leaves of the snapshot are not those of the template."""


class _Part(NamedTuple):
    """One entry of the header: a leaf, or a tuple or record (NamedTuple) that announces its elements."""

    path: str
    kind: str  # "<f8", "<i8" or "|b1" of an array; "int", "float", "bool", "str", "none"; "tuple", "record"
    shape: tuple[int, ...]  # of an array; (bytes,) of an int or a str; (elements,) of a tuple or record; else ()


def encode(state: object, *, fingerprint: str) -> bytes:
    """The state as bytes; `fingerprint` names the configuration it belongs to.

    >>> class Counts(NamedTuple):
    ...     rounds: int
    ...     spent: Any
    >>> data = encode(Counts(3, np.array([1.5, 0.0])), fingerprint="campaign 7")
    >>> decode(data, Counts(0, np.zeros(1)), fingerprint="campaign 7")
    Counts(rounds=3, spent=array([1.5, 0. ]))
    """
    parts: list[tuple[_Part, bytes]] = []
    _collect(state, _ROOT, 0, parts)
    content = {"fingerprint": fingerprint, "parts": [part for part, _ in parts]}
    header = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    pieces = [_PREAMBLE.pack(MAGIC, VERSION, len(header)), header]
    end = _PREAMBLE.size + len(header)
    for _, raw in parts:
        if raw:
            pieces += [bytes(-end % _ALIGNMENT), raw]
            end += -end % _ALIGNMENT + len(raw)
    body = b"".join(pieces)
    return body + _checksum(body)


def decode(data: bytes, template: State, *, fingerprint: str) -> State:
    """The state in the bytes, built from the classes of `template`; arrays come back read-only.

    Paths, kinds and numbers of array axes must be those of the template. Lengths of axes may differ (arrays grow; the
    caller checks where it must), and so may lengths of plain tuples: the elements are then like the template's first if
    that is a tuple or NamedTuple, and otherwise whatever leaves the bytes hold.

    >>> decode(b"", None, fingerprint="")
    Traceback (most recent call last):
    cbwk_core.snapshot.NotASnapshotError: a snapshot begins with b'CBWK' and has at least 26 bytes; this does not
    """
    header_end, body = _checked(data)
    found, parts = _header(body, header_end)
    if found != fingerprint:
        raise ForeignSnapshotError(_difference(found, fingerprint))
    reader = _Reader(body, header_end, parts)
    state = reader.read(template, _ROOT, 0)
    reader.finish()
    return cast(State, state)


def fingerprint_of(data: bytes) -> str:
    """The fingerprint in the bytes, which are checked for damage first.

    >>> fingerprint_of(encode(7, fingerprint="campaign 7"))
    'campaign 7'
    """
    header_end, body = _checked(data)
    return _header(body, header_end)[0]


def _header(body: memoryview, end: int) -> tuple[str, list[_Part]]:
    """Fingerprint and parts."""
    try:
        header = json.loads(bytes(body[_PREAMBLE.size : end]))
    except (ValueError, RecursionError) as error:
        raise MismatchError("the header of the snapshot is not JSON") from error
    return _parsed(header)


def _collect(value: object, path: str, depth: int, parts: list[tuple[_Part, bytes]]) -> None:
    """Append `value` and what is below it, in order."""
    if depth > DEPTH_MAX:
        raise UnencodableError(f"{path} is nested deeper than {DEPTH_MAX} levels")
    kind = _kind(value, path)
    if isinstance(value, tuple):
        parts.append((_Part(path, kind, (len(value),)), b""))
        for place, element in zip(_places(path, value), value, strict=True):
            _collect(element, place, depth + 1, parts)
        return
    raw = _raw(value, kind)
    if isinstance(value, np.ndarray):
        shape = value.shape
    else:
        shape = (len(raw),) if kind in ("int", "str") else ()
    parts.append((_Part(path, kind, shape), raw))


def _places(path: str, parent: tuple[object, ...]) -> list[str]:
    """The paths of the elements of a tuple or record."""
    if _is_record(parent):
        return [f"{path}.{name}" for name in type(parent)._fields]
    return [f"{path}[{index}]" for index in range(len(parent))]


def _is_record(value: object) -> TypeGuard[Any]:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _kind(value: object, path: str) -> str:
    """What a part is called in the header. A numpy scalar counts as the Python value it equals."""
    if type(value) is np.ndarray:
        if value.dtype in _ARRAY_KINDS:
            return _ARRAY_KINDS[value.dtype]
        reason = ": models of other libraries cannot be encoded" if value.dtype.hasobject else ""
        raise UnencodableError(f"{path} must be an array of float64, int64 or bool, got {value.dtype}{reason}")
    if value is None:
        return "none"
    if _is_record(value):
        return "record"
    for kind, types in _KINDS.items():
        if type(value) in types:
            return kind
    raise UnencodableError(
        f"{path} must be an array, a number, a string, None or a tuple of them, got {type(value).__name__}"
    )


def _raw(value: Any, kind: str) -> bytes:
    """The bytes of a leaf."""
    if kind in _NATIVE_DTYPES:
        return bytes(value.astype(kind, copy=False).tobytes())
    if kind == "int":
        number = int(value)
        return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    if kind == "float":
        return _FLOAT.pack(value)
    if kind == "bool":
        return bytes([bool(value)])
    return bytes(value.encode("utf-8", "surrogatepass")) if kind == "str" else b""


def _checksum(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=CHECKSUM_BYTES).digest()


def _shown(text: str) -> str:
    """Text from outside, fit for a message."""
    return ascii(text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…")


def _difference(found: str, wanted: str) -> str:
    """Where two fingerprints part: they may be long, and alike for most of it."""
    pairs = enumerate(zip(found, wanted, strict=False))
    start = next((index for index, (one, other) in pairs if one != other), min(len(found), len(wanted)))
    return (
        f"the snapshot is of another configuration: from character {start} on its fingerprint is "
        f"{_shown(found[start:])}, wanted {_shown(wanted[start:])}"
    )


def _checked(data: bytes) -> tuple[int, memoryview]:
    """Where the header ends, and the bytes before the checksum, once they are known to be undamaged."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise NotASnapshotError(f"data must be the bytes of a snapshot, got {type(data).__name__}")
    least = _PREAMBLE.size + CHECKSUM_BYTES
    if len(data) < least or data[: len(MAGIC)] != MAGIC:
        raise NotASnapshotError(f"a snapshot begins with {MAGIC!r} and has at least {least} bytes; this does not")
    _, version, header_bytes = _PREAMBLE.unpack_from(data)
    if version != VERSION:
        raise UnknownVersionError(f"the snapshot has format version {version}, this code reads {VERSION}")
    body = memoryview(data)[:-CHECKSUM_BYTES]
    if _checksum(body) != data[-CHECKSUM_BYTES:]:
        raise BadChecksumError(f"the checksum of the snapshot's {len(body)} bytes is wrong: damaged or truncated")
    header_end = _PREAMBLE.size + header_bytes
    if header_end > len(body):
        raise MismatchError(f"the snapshot announces {header_bytes} bytes of header and is shorter")
    return header_end, body


def _parsed(header: object) -> tuple[str, list[_Part]]:
    """Fingerprint and parts of a header, every piece of the type it should have."""
    match header:
        case {"fingerprint": str(fingerprint), "parts": [*entries], **more} if not more:
            return fingerprint, [_parsed_part(index, entry) for index, entry in enumerate(entries)]
        case _:
            raise MismatchError("the header of the snapshot must have a fingerprint and a list of parts")


def _parsed_part(index: int, entry: object) -> _Part:
    match entry:
        case [str(path), str(kind), [*shape]] if len(shape) <= _AXES_MAX and all(map(_is_length, shape)):
            return _Part(path, kind, cast(tuple[int, ...], tuple(shape)))
        case _:
            raise MismatchError(f"part {index} of the snapshot must be a path, a kind and a shape")


def _is_length(size: object) -> bool:
    return type(size) is int and 0 <= size <= _LENGTH_MAX


@dataclass
class _Reader:
    """Walks a template and the parts of a snapshot side by side."""

    body: memoryview
    end: int  # of what has been read
    parts: list[_Part]
    taken: int = 0

    def read(self, template: object, path: str, depth: int) -> object:
        """The value at `path`, in the image of `template`."""
        part = self._take(path)
        wanted = _kind(template, path)
        if part.kind != wanted:
            raise MismatchError(f"{path} must be of kind {wanted} as in the template, got {_shown(part.kind)}")
        if isinstance(template, tuple):
            return self._elements(part, template, depth)
        if isinstance(template, np.ndarray) and len(part.shape) != template.ndim:
            raise MismatchError(f"{path} must have {template.ndim} axes as in the template, got {len(part.shape)}")
        return self._leaf(part)

    def _read_untold(self, path: str, depth: int) -> object:
        """A leaf, or a tuple of leaves, of which the template has no example."""
        part = self._take(path)
        if part.kind == "record":
            raise MismatchError(f"{path} is a NamedTuple of which the template has no example")
        return self._elements(part, (), depth) if part.kind == "tuple" else self._leaf(part)

    def _elements(self, part: _Part, template: tuple[object, ...], depth: int) -> object:
        if depth > DEPTH_MAX:
            raise MismatchError(f"{part.path} is nested deeper than {DEPTH_MAX} levels")
        if len(part.shape) != 1 or part.shape[0] > len(self.parts) - self.taken:
            raise MismatchError(f"{part.path} has more elements than are left in the snapshot")
        (length,) = part.shape
        if length == len(template):
            places = _places(part.path, template)
            values = [self.read(element, place, depth + 1) for place, element in zip(places, template, strict=True)]
            return type(template)._make(values) if _is_record(template) else tuple(values)
        if _is_record(template):
            raise MismatchError(f"{part.path} must have {len(template)} fields as in the template, got {length}")
        paths = (f"{part.path}[{index}]" for index in range(length))
        if template and isinstance(template[0], tuple):
            return tuple(self.read(template[0], path, depth + 1) for path in paths)
        return tuple(self._read_untold(path, depth + 1) for path in paths)

    def _take(self, path: str) -> _Part:
        if self.taken == len(self.parts):
            raise MismatchError(f"{path} is missing in the snapshot")
        part = self.parts[self.taken]
        if part.path != path:
            raise MismatchError(f"{path} must come next in the snapshot, got {_shown(part.path)}")
        self.taken += 1
        return part

    def _leaf(self, part: _Part) -> object:
        if part.kind in _NATIVE_DTYPES:
            return self._array(part)
        if part.kind in ("int", "str") and len(part.shape) == 1:
            raw = self._raw(part, part.shape[0])
        elif part.kind in _SCALAR_BYTES and not part.shape:
            raw = self._raw(part, _SCALAR_BYTES[part.kind])
        else:
            raise MismatchError(f"{part.path} has a kind or shape that no leaf has: {_shown(part.kind)}")
        if part.kind == "int":
            return int.from_bytes(raw, "little", signed=True)
        if part.kind == "float":
            return _FLOAT.unpack(raw)[0]
        if part.kind == "bool":
            return _checked_truths(part, raw) == b"\x01"
        if part.kind == "none":
            return None
        try:
            return str(raw, "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise MismatchError(f"{part.path} is not UTF-8") from error

    def _array(self, part: _Part) -> np.ndarray[Any, Any]:
        raw = self._raw(part, prod(part.shape) * np.dtype(part.kind).itemsize)
        if part.kind == "|b1":
            _checked_truths(part, raw)
        try:
            view = np.frombuffer(raw, dtype=part.kind).reshape(part.shape)
        except ValueError as error:  # lengths beyond numpy's, possible where one of them is 0
            raise MismatchError(f"{part.path} has a shape that no array has") from error
        array = view.astype(_NATIVE_DTYPES[part.kind])  # a copy: `data` need not outlive the state
        array.setflags(write=False)
        return array

    def _raw(self, part: _Part, size: int) -> memoryview:
        """The next `size` bytes, without a copy."""
        start = self.end + -self.end % _ALIGNMENT if size else self.end
        if size > len(self.body) - start:
            raise MismatchError(f"{part.path} is longer than what is left of the snapshot")
        self.end = start + size
        return self.body[start : self.end]

    def finish(self) -> None:
        """Everything must have been asked for."""
        if self.taken < len(self.parts):
            raise MismatchError(f"{_shown(self.parts[self.taken].path)} is in the snapshot and not in the template")
        if self.end != len(self.body):
            raise MismatchError(f"the snapshot has {len(self.body) - self.end} bytes after its last leaf")


def _checked_truths(part: _Part, raw: memoryview) -> bytes:
    """Bytes that are 0 or 1: numpy's results on other ones are not defined."""
    truths = bytes(raw)
    if truths.strip(b"\x00\x01"):
        raise MismatchError(f"{part.path} has a truth value that is neither 0 nor 1")
    return truths
