"""Converts a state to bytes and back, without pickle.

Reading a snapshot runs no code from it and creates only instances of the classes of a template.

    SnapshotError (a ValueError)
    ├── UnencodableError      the state contains a value that the format does not support
    ├── NotASnapshotError     the data is something else, or ends within the preamble
    ├── UnknownVersionError   the data has a format version that this code does not know
    ├── BadChecksumError      the data is damaged or truncated
    ├── ForeignSnapshotError  the data is intact, but belongs to another configuration
    └── MismatchError         the data is intact, but its structure differs from the template

A state consists of nested NamedTuples and tuples. Its leaves are None, numpy arrays (float64, int64, bool) and Python
ints, floats, bools and strings. The bytes are:

    preamble   b"CBWK", format version (uint16), length of the header (uint32), all little-endian
    header     JSON: the fingerprint, and a list with [path, kind, shape] of every tuple and leaf, in depth-first order
    leaves     the raw little-endian bytes of the leaves, each starting at a multiple of 8
    checksum   blake2b, 16 bytes, of everything before

Equal states give equal bytes, so a digest identifies them. The checksum detects damage; forged entries are refused.
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
# States have few levels. Without a limit, a forged header could nest tuples until the interpreter's stack overflows.
DEPTH_MAX = 32
CHECKSUM_BYTES = 16

_PREAMBLE = struct.Struct("<4sHI")
_FLOAT = struct.Struct("<d")
_ALIGNMENT = 8
_SHOWN_LENGTH_MAX = 40
_ROOT = "state"
# The kind of an array is numpy's name of its dtype, which includes size and byte order.
_ARRAY_KINDS = {np.dtype(np.float64): "<f8", np.dtype(np.int64): "<i8", np.dtype(np.bool): "|b1"}
_NATIVE_DTYPES = {kind: dtype for dtype, kind in _ARRAY_KINDS.items()}
_KINDS: dict[type, str] = {
    type(None): "none",
    tuple: "tuple",
    int: "int",
    np.int64: "int",
    float: "float",
    np.float64: "float",
    bool: "bool",
    np.bool: "bool",
    str: "str",
}
_FIXED_BYTES = {"none": 0, "bool": 1, "float": _FLOAT.size}
# The limits of numpy.
_AXES_MAX = 64
_LENGTH_MAX = 2**63 - 1


class SnapshotError(ValueError):
    """A state cannot be written, or bytes cannot be read as a state like the template."""


class UnencodableError(SnapshotError):
    """The state contains a value that the format does not support."""


class NotASnapshotError(SnapshotError):
    """The bytes do not start like a snapshot."""


class UnknownVersionError(SnapshotError):
    """The bytes have a format version that this code does not know."""


class BadChecksumError(SnapshotError):
    """The bytes differ from those that were written."""


class ForeignSnapshotError(SnapshotError):
    """The snapshot belongs to another configuration."""


class MismatchError(SnapshotError):
    """The structure of the snapshot differs from the template."""


class _Entry(NamedTuple):
    """One entry of the header. It describes a leaf, or a tuple or record (NamedTuple) whose elements follow."""

    path: str
    kind: str  # "<f8", "<i8" or "|b1" of an array; "int", "float", "bool", "str", "none"; "tuple", "record"
    shape: tuple[int, ...]  # of an array; (bytes,) of an int or a str; (elements,) of a tuple or record; else ()


def encode(state: object, *, fingerprint: str) -> bytes:
    """Return the state as bytes. `fingerprint` names the configuration to which the state belongs.

    >>> class Counts(NamedTuple):
    ...     rounds: int
    ...     spent: Any
    >>> data = encode(Counts(3, np.array([1.5, 0.0])), fingerprint="campaign 7")
    >>> decode(data, Counts(0, np.zeros(1)), fingerprint="campaign 7")
    Counts(rounds=3, spent=array([1.5, 0. ]))
    """
    entries: list[tuple[_Entry, bytes]] = []
    _collect(state, _ROOT, 0, entries)
    content = {"fingerprint": fingerprint, "parts": [entry for entry, _ in entries]}
    header = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    pieces = [_PREAMBLE.pack(MAGIC, VERSION, len(header)), header]
    end = _PREAMBLE.size + len(header)
    for _, raw in entries:
        if raw:
            pieces += [bytes(-end % _ALIGNMENT), raw]
            end += -end % _ALIGNMENT + len(raw)
    body = b"".join(pieces)
    return body + _checksum(body)


def decode(data: bytes, template: State, *, fingerprint: str) -> State:
    """Return the state in the bytes, with the classes of `template` and with read-only arrays.

    Paths, kinds and numbers of axes must equal those of the template. The lengths of axes may differ, because arrays
    grow; the caller checks them where necessary. The length of a tuple may differ, too. Its elements must then have the
    structure of the template's first element if that is a tuple or NamedTuple, and otherwise may be any leaves. Fields
    with a default may be missing in the bytes, because an older version wrote them: they are those of the template.

    >>> decode(encode(7, fingerprint="campaign 7"), 0.5, fingerprint="campaign 7")
    Traceback (most recent call last):
    cbwk_core.snapshot.MismatchError: state must be of kind float as in the template, got 'int'
    """
    body, header_end = _verified(data)
    found, entries = _parsed_header(body, header_end)
    if found != fingerprint:
        raise ForeignSnapshotError(_difference(found, fingerprint))
    reader = _Reader(body, header_end, entries)
    state = reader.read(template, _ROOT, 0)
    reader.finish()
    return cast(State, state)


def fingerprint_of(data: bytes) -> str:
    """Return the fingerprint in the bytes, after a check of the bytes for damage.

    >>> fingerprint_of(encode(7, fingerprint="campaign 7"))
    'campaign 7'
    """
    return _parsed_header(*_verified(data))[0]


def has(data: bytes, path: str) -> bool:
    """Return whether the state in the bytes has something at the path, after a check of the bytes for damage."""
    return any(entry.path == f"{_ROOT}.{path}" for entry in _parsed_header(*_verified(data))[1])


def _collect(value: object, path: str, depth: int, entries: list[tuple[_Entry, bytes]]) -> None:
    """Append the entry of `value` with its bytes, and then those of its elements."""
    if depth > DEPTH_MAX:
        raise UnencodableError(f"{path} is nested deeper than {DEPTH_MAX} levels")
    kind = _kind(value, path)
    if isinstance(value, tuple):
        entries.append((_Entry(path, kind, (len(value),)), b""))
        for place, element in zip(_element_paths(path, value), value, strict=True):
            _collect(element, place, depth + 1, entries)
        return
    raw = _raw(value, kind)
    if isinstance(value, np.ndarray):
        shape = value.shape
    else:
        shape = (len(raw),) if kind in ("int", "str") else ()
    entries.append((_Entry(path, kind, shape), raw))


def _element_paths(path: str, parent: tuple[object, ...]) -> list[str]:
    if _is_record(parent):
        return [f"{path}.{name}" for name in type(parent)._fields]
    return [f"{path}[{index}]" for index in range(len(parent))]


def _least_fields(record: Any) -> int:
    """Return how many fields of a NamedTuple have no default."""
    return len(record) - len(type(record)._field_defaults)


def _is_record(value: object) -> TypeGuard[Any]:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _kind(value: object, path: str) -> str:
    """Return the kind of a value. A numpy scalar has the kind of the Python value that it equals."""
    if type(value) is np.ndarray:
        if value.dtype in _ARRAY_KINDS:
            return _ARRAY_KINDS[value.dtype]
        reason = ": models of other libraries cannot be encoded" if value.dtype.hasobject else ""
        raise UnencodableError(f"{path} must be an array of float64, int64 or bool, got {value.dtype}{reason}")
    if _is_record(value):
        return "record"
    if type(value) in _KINDS:
        return _KINDS[type(value)]
    raise UnencodableError(
        f"{path} must be an array, a number, a string, None or a tuple of them, got {type(value).__name__}"
    )


def _raw(value: Any, kind: str) -> bytes:
    """Return the bytes of a leaf."""
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
    """Return the start of a text that comes from the data, safe to print."""
    return ascii(text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…")


def _difference(found: str, wanted: str) -> str:
    """Describe the first difference of two fingerprints. They may be long and mostly equal."""
    pairs = enumerate(zip(found, wanted, strict=False))
    start = next((index for index, (one, other) in pairs if one != other), min(len(found), len(wanted)))
    return (
        f"the snapshot belongs to another configuration: from character {start} its fingerprint is "
        f"{_shown(found[start:])}, wanted {_shown(wanted[start:])}"
    )


def _verified(data: bytes) -> tuple[memoryview, int]:
    """Return the bytes before the checksum, which is correct, and where the header ends."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise NotASnapshotError(f"data must be the bytes of a snapshot, got {type(data).__name__}")
    least = _PREAMBLE.size + CHECKSUM_BYTES
    if len(data) < least or data[: len(MAGIC)] != MAGIC:
        found = f"{len(data)} bytes that begin with {bytes(data[: len(MAGIC)])!r}"
        raise NotASnapshotError(f"a snapshot begins with {MAGIC!r} and has at least {least} bytes, got {found}")
    _, version, header_bytes = _PREAMBLE.unpack_from(data)
    if version != VERSION:
        raise UnknownVersionError(f"the snapshot has format version {version}, this code reads {VERSION}")
    body = memoryview(data)[:-CHECKSUM_BYTES]
    if _checksum(body) != data[-CHECKSUM_BYTES:]:
        raise BadChecksumError(f"the checksum of the snapshot's {len(body)} bytes is wrong: damaged or truncated")
    header_end = _PREAMBLE.size + header_bytes
    if header_end > len(body):
        raise MismatchError(f"the header of the snapshot must have {header_bytes} bytes, but the snapshot is shorter")
    return body, header_end


def _parsed_header(body: memoryview, end: int) -> tuple[str, list[_Entry]]:
    """Return the fingerprint and the entries. Every value has the expected type."""
    try:
        header = json.loads(bytes(body[_PREAMBLE.size : end]))
    except (ValueError, RecursionError) as error:
        raise MismatchError("the header of the snapshot is not JSON") from error
    match header:
        case {"fingerprint": str(fingerprint), "parts": [*entries], **more} if not more:
            return fingerprint, [_parsed_entry(index, entry) for index, entry in enumerate(entries)]
        case _:
            raise MismatchError("the header of the snapshot must have a fingerprint and a list of parts")


def _parsed_entry(index: int, entry: object) -> _Entry:
    match entry:
        case [str(path), str(kind), [*shape]] if len(shape) <= _AXES_MAX and all(map(_is_length, shape)):
            return _Entry(path, kind, cast(tuple[int, ...], tuple(shape)))
        case _:
            raise MismatchError(f"part {index} of the snapshot must be a path, a kind and a shape")


def _is_length(size: object) -> bool:
    return type(size) is int and 0 <= size <= _LENGTH_MAX


@dataclass
class _Reader:
    """Reads the entries in order, next to a depth-first walk over the template."""

    body: memoryview
    position: int  # the end of the last leaf that was read
    entries: list[_Entry]
    entries_read: int = 0

    def read(self, template: object, path: str, depth: int) -> object:
        """Return the value at `path`, which must have the structure of `template`."""
        entry = self._next_entry(path)
        wanted = _kind(template, path)
        if entry.kind != wanted:
            raise MismatchError(f"{path} must be of kind {wanted} as in the template, got {_shown(entry.kind)}")
        if isinstance(template, tuple):
            return self._elements(entry, template, depth)
        if isinstance(template, np.ndarray) and len(entry.shape) != template.ndim:
            raise MismatchError(f"{path} must have {template.ndim} axes as in the template, got {len(entry.shape)}")
        return self._leaf(entry)

    def finish(self) -> None:
        """Check that nothing is left over."""
        if self.entries_read < len(self.entries):
            extra = _shown(self.entries[self.entries_read].path)
            raise MismatchError(f"{extra} is in the snapshot and not in the template")
        if self.position != len(self.body):
            raise MismatchError(f"the snapshot has {len(self.body) - self.position} bytes after its last leaf")

    def _read_without_template(self, path: str, depth: int) -> object:
        """Return the value at `path`: a leaf, or nested tuples of leaves."""
        entry = self._next_entry(path)
        if entry.kind == "record":
            raise MismatchError(f"{path} is a NamedTuple of a class that the template does not show")
        return self._elements(entry, (), depth) if entry.kind == "tuple" else self._leaf(entry)

    def _elements(self, entry: _Entry, template: tuple[object, ...], depth: int) -> object:
        if depth > DEPTH_MAX:
            raise MismatchError(f"{entry.path} is nested deeper than {DEPTH_MAX} levels")
        if len(entry.shape) != 1 or entry.shape[0] > len(self.entries) - self.entries_read:
            raise MismatchError(f"{entry.path} has more elements than the snapshot has left")
        (length,) = entry.shape
        if length == len(template) or (_is_record(template) and _least_fields(template) <= length < len(template)):
            pairs = zip(_element_paths(entry.path, template)[:length], template[:length], strict=True)
            values = [self.read(element, path, depth + 1) for path, element in pairs]
            return type(template)._make((*values, *template[length:])) if _is_record(template) else tuple(values)
        if _is_record(template):
            raise MismatchError(f"{entry.path} must have the {len(template)} fields of the template, got {length}")
        paths = [f"{entry.path}[{index}]" for index in range(length)]
        if template and isinstance(template[0], tuple):
            return tuple(self.read(template[0], path, depth + 1) for path in paths)
        return tuple(self._read_without_template(path, depth + 1) for path in paths)

    def _next_entry(self, path: str) -> _Entry:
        if self.entries_read == len(self.entries):
            raise MismatchError(f"{path} is missing in the snapshot")
        entry = self.entries[self.entries_read]
        if entry.path != path:
            raise MismatchError(f"{path} must come next in the snapshot, got {_shown(entry.path)}")
        self.entries_read += 1
        return entry

    def _leaf(self, entry: _Entry) -> object:
        if entry.kind in _NATIVE_DTYPES:
            return self._array(entry)
        if entry.kind in ("int", "str") and len(entry.shape) == 1:
            raw = self._bytes(entry, entry.shape[0])
        elif entry.kind in _FIXED_BYTES and not entry.shape:
            raw = self._bytes(entry, _FIXED_BYTES[entry.kind])
        else:
            raise MismatchError(f"{entry.path} must have the kind and shape of a leaf, got {_shown(entry.kind)}")
        if entry.kind == "int":
            return int.from_bytes(raw, "little", signed=True)
        if entry.kind == "float":
            return _FLOAT.unpack(raw)[0]
        if entry.kind == "bool":
            return _checked_bools(entry, raw) == b"\x01"
        try:
            return None if entry.kind == "none" else str(raw, "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise MismatchError(f"{entry.path} is not UTF-8") from error

    def _array(self, entry: _Entry) -> np.ndarray[Any, Any]:
        raw = self._bytes(entry, prod(entry.shape) * np.dtype(entry.kind).itemsize)
        if entry.kind == "|b1":
            _checked_bools(entry, raw)
        try:
            view = np.frombuffer(raw, dtype=entry.kind).reshape(entry.shape)
        except ValueError as error:  # one length is 0, and another is larger than numpy allows
            raise MismatchError(f"{entry.path} has a shape that no array can have") from error
        array = view.astype(_NATIVE_DTYPES[entry.kind])  # a copy, so that the state does not keep `data` in memory
        array.setflags(write=False)
        return array

    def _bytes(self, entry: _Entry, size: int) -> memoryview:
        """Return the next `size` bytes, without a copy."""
        start = self.position + -self.position % _ALIGNMENT if size else self.position
        if size > len(self.body) - start:
            raise MismatchError(f"{entry.path} is longer than the rest of the snapshot")
        self.position = start + size
        return self.body[start : self.position]


def _checked_bools(entry: _Entry, raw: memoryview) -> bytes:
    """Return the bytes, each of which is 0 or 1; numpy does not define what it does with other values."""
    bools = bytes(raw)
    if bools.strip(b"\x00\x01"):
        raise MismatchError(f"{entry.path} has a boolean that is neither 0 nor 1")
    return bools
