import json
import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cbwk_core import snapshot
from cbwk_core.oracles.newton import Newton
from cbwk_core.snapshot import decode, encode


class Learner(NamedTuple):
    theta: object
    count: object
    seen: object


class Shorter(NamedTuple):
    theta: object
    count: object


class Whole(NamedTuple):
    learners: tuple
    cells: tuple
    prices: object
    rounds: int
    scale: float
    reason: str
    note: object
    done: bool


class Nothing(NamedTuple):
    pass


def bits(value):
    """Replaces every leaf by its type, dtype, shape and exact bytes, so that `==` compares bit for bit."""
    if isinstance(value, tuple):
        return (type(value).__name__, [bits(part) for part in value])
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    return (type(value).__name__, struct.pack("<d", value) if isinstance(value, float) else value)


def floats_from_bits(shape):
    """Floats of any bit pattern, so also NaNs with a payload, both zeros, infinities and subnormals."""
    return hnp.arrays(np.uint64, shape).map(lambda raw: raw.view(np.float64))


def arrays(dims):
    shape = hnp.array_shapes(min_dims=dims, max_dims=dims, min_side=0, max_side=3)
    return st.one_of(floats_from_bits(shape), hnp.arrays(np.int64, shape), hnp.arrays(np.bool, shape))


learners = st.builds(
    Learner,
    theta=floats_from_bits(hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=3)),
    count=hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=1, min_side=0)),
    seen=hnp.arrays(np.bool, ()),
)
wholes = st.builds(
    Whole,
    learners=st.lists(learners, max_size=3).map(tuple),
    cells=st.lists(st.integers(0, 3).flatmap(arrays), max_size=4).map(tuple),
    prices=floats_from_bits(3),
    rounds=st.one_of(st.integers(), st.just(10**4000), st.just(-(10**4000))),
    scale=st.integers(0, 2**64 - 1).map(lambda raw: struct.unpack("<d", struct.pack("<Q", raw))[0]),
    reason=st.text(st.characters(exclude_categories=[])),
    note=st.none(),
    done=st.booleans(),
)
LEARNER = Learner(np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.array(False))
TEMPLATE = Whole((LEARNER,), (), np.zeros(3), 0, 0.0, "", None, False)
SMALL = TEMPLATE._replace(cells=(np.arange(3.0), np.array([True, False])), rounds=-7, reason="ended")


def resealed(header, leaves=b"", version=1):
    """Builds a snapshot with a correct checksum around any header, straight from the description of the format."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = b"CBWK" + struct.pack("<HI", version, len(raw)) + raw
    if leaves:
        body += bytes(-len(body) % 8) + leaves
    return sealed(body)


def sealed(body):
    return body + blake2b(body, digest_size=16).digest()


@given(wholes, st.text(st.characters(exclude_categories=[])))
@example(SMALL, "")
@example(TEMPLATE._replace(prices=np.array([np.nan, -0.0, np.inf]), scale=-0.0), "x")
def test_decoding_returns_the_encoded_state_bit_for_bit(state, fingerprint):
    data = encode(state, fingerprint=fingerprint)
    back = decode(data, TEMPLATE, fingerprint=fingerprint)
    assert bits(back) == bits(state)
    assert encode(back, fingerprint=fingerprint) == data


@given(wholes)
def test_decoded_arrays_are_read_only(state):
    back = decode(encode(state, fingerprint="f"), TEMPLATE, fingerprint="f")
    found = [back.prices, *back.cells, *(part for learner in back.learners for part in learner)]
    assert not any(array.flags.writeable for array in found)


def test_the_bytes_do_not_depend_on_the_memory_layout():
    table = np.arange(12.0).reshape(3, 4)
    data = encode((table,), fingerprint="f")
    assert encode((np.asfortranarray(table),), fingerprint="f") == data
    assert encode((np.repeat(table, 2, axis=1)[:, ::2],), fingerprint="f") == data


def test_the_bytes_are_those_the_format_describes():
    state = (np.array([1.0, -2.5]), 258)
    parts = [["state", "tuple", [2]], ["state[0]", "<f8", [2]], ["state[1]", "int", [2]]]
    header = json.dumps({"fingerprint": "f", "parts": parts}, separators=(",", ":")).encode()
    assert encode(state, fingerprint="f") == resealed(header, struct.pack("<dd", 1.0, -2.5) + b"\x02\x01")


def test_numpy_scalars_are_stored_as_the_python_values_they_equal():
    state = (np.float64(0.1), np.int64(-3), np.bool(True))
    back = decode(encode(state, fingerprint="f"), (0.0, 0, False), fingerprint="f")
    assert bits(back) == bits((0.1, -3, True))
    assert encode(back, fingerprint="f") == encode(state, fingerprint="f")


def test_an_oracle_continues_to_learn_from_a_decoded_state():
    oracle = Newton(dimension=3, targets=2, blocks=2)
    rows, targets = np.eye(3), np.full((3, 2), 0.5)
    state = oracle.update(oracle.init(), rows, targets, np.array([0, 1, 1]))
    back = decode(encode(state, fingerprint="f"), oracle.init(), fingerprint="f")
    assert bits(back) == bits(state)
    assert bits(oracle.update(back, rows, targets)) == bits(oracle.update(state, rows, targets))


@given(st.data())
def test_any_changed_byte_is_refused(data):
    intact = encode(SMALL, fingerprint="f")
    index = data.draw(st.integers(0, len(intact) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = intact[:index] + bytes([intact[index] ^ change]) + intact[index + 1 :]
    with pytest.raises(snapshot.SnapshotError):
        decode(damaged, SMALL, fingerprint="f")


def test_every_truncation_and_every_extension_is_refused():
    intact = encode(SMALL, fingerprint="f")
    for damaged in [*(intact[:end] for end in range(len(intact))), intact + b"\x00", intact + intact]:
        with pytest.raises(snapshot.SnapshotError):
            decode(damaged, SMALL, fingerprint="f")


@given(st.text(max_size=200))
def test_a_snapshot_of_another_configuration_is_refused(fingerprint):
    if fingerprint != "mine":
        with pytest.raises(snapshot.ForeignSnapshotError) as caught:
            decode(encode(SMALL, fingerprint=fingerprint), SMALL, fingerprint="mine")
        assert len(str(caught.value)) < 600


def test_a_foreign_fingerprint_is_shown_from_the_first_difference():
    theirs, ours = "Policy(" + "same, " * 50 + "horizon=7)", "Policy(" + "same, " * 50 + "horizon=8)"
    with pytest.raises(snapshot.ForeignSnapshotError, match=r"is '7\)', wanted '8\)'$"):
        decode(encode(SMALL, fingerprint=theirs), SMALL, fingerprint=ours)


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2**70), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["<f8", "<i8", "|b1", "int", "float", "bool", "str", "none", "tuple", "record", "|O", "<f4"])
shapes = st.lists(st.sampled_from([0, 1, 2, 3, 2**31, 2**62, 2**63 - 1]), max_size=4)
paths = st.sampled_from(["state", "state[0]", "state[1]", "state[0].theta", "state[0][0]", "elsewhere"])
headers = st.one_of(
    anything,
    st.fixed_dictionaries({"fingerprint": st.just("f"), "parts": anything}),
    st.fixed_dictionaries(
        {"fingerprint": st.just("f"), "parts": st.lists(st.tuples(paths, kinds, shapes), max_size=4).map(list)}
    ),
)
templates = st.sampled_from([None, 0, 0.0, False, "", (), np.zeros(2), (np.zeros(2),), (LEARNER,), LEARNER, SMALL])


@given(st.binary(max_size=100), templates)
def test_arbitrary_bytes_raise_nothing_but_a_snapshot_error(data, template):
    for attempt in (data, b"CBWK" + data, b"CBWK\x01\x00" + data):
        with pytest.raises(snapshot.SnapshotError):
            decode(attempt, template, fingerprint="f")


@given(st.one_of(headers, st.binary(max_size=40)), st.binary(max_size=40), templates)
def test_forged_bytes_with_a_correct_checksum_raise_nothing_but_a_snapshot_error(header, leaves, template):
    try:
        state = decode(resealed(header, leaves), template, fingerprint="f")
    except snapshot.SnapshotError:
        return
    assert type(state) is type(template)


def sealed_parts(*parts, leaves=b""):
    return resealed({"fingerprint": "f", "parts": parts}, leaves)


FORGED = {
    "a header that ends after the data": sealed(b"CBWK" + struct.pack("<HI", 1, 2**32 - 1)),
    "a header nested without end": resealed(b"[" * 100_000),
    "a length beyond every memory": sealed_parts(["state", "<f8", [2**62]]),
    "a length that numpy cannot hold": sealed_parts(["state", "<f8", [0, 2**62, 2**62]]),
    "too many axes": sealed_parts(["state", "<f8", [1] * 65], leaves=bytes(8)),
    "a negative length": sealed_parts(["state", "<f8", [-1]], leaves=bytes(8)),
    "a truth that is neither 0 nor 1": sealed_parts(["state", "|b1", [2]], leaves=b"\x01\x02"),
    "text that is not UTF-8": sealed_parts(["state", "str", [1]], leaves=b"\xff"),
    "more elements than parts": sealed_parts(["state", "tuple", [10**9]]),
    "bytes after the last leaf": sealed_parts(["state", "none", []], leaves=b"\x00"),
    "an object array": sealed_parts(["state", "|O", [1]], leaves=bytes(8)),
    "another key": resealed({"fingerprint": "f", "parts": [], "run": "me"}),
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize(
    "template", [None, False, "", (), np.zeros(1), np.zeros(1, dtype=np.bool), np.zeros((1, 1, 1))]
)
def test_forged_sizes_and_values_are_refused(data, template):
    with pytest.raises(snapshot.MismatchError):
        decode(data, template, fingerprint="f")


def test_deeply_nested_tuples_are_refused_when_writing_and_when_reading():
    nested: tuple = ()
    for _ in range(snapshot.DEPTH_MAX):
        nested = (nested,)
    assert decode(encode(nested, fingerprint="f"), (), fingerprint="f") == nested
    with pytest.raises(snapshot.UnencodableError):
        encode((nested,), fingerprint="f")
    parts = [["state" + "[0]" * depth, "tuple", [1]] for depth in range(2000)]
    with pytest.raises(snapshot.MismatchError, match="nested deeper"):
        decode(sealed_parts(*parts), (), fingerprint="f")


def test_a_later_format_is_refused_because_of_its_version_before_the_checksum():
    with pytest.raises(snapshot.UnknownVersionError, match="format version 2"):
        decode(resealed({}, version=2)[:-1], SMALL, fingerprint="f")


MISMATCHES = {
    "a tuple for a NamedTuple": (LEARNER, (*LEARNER,)),
    "a field less": (LEARNER, Shorter(*LEARNER[:2])),
    "a field more": (Shorter(*LEARNER[:2]), LEARNER),
    "a field of another dtype": (LEARNER, LEARNER._replace(count=np.zeros(1))),
    "a field with another number of axes": (LEARNER, LEARNER._replace(theta=np.zeros(1))),
    "None for an array": (LEARNER, LEARNER._replace(theta=None)),
    "an array for None": (LEARNER._replace(theta=None), LEARNER),
    "an array without axes for a float": (0.0, np.array(0.0)),
    "an int for a bool": (True, 1),
    "a float for an int": (1, 1.0),
    "fields of another name": (SMALL, LEARNER),
    "NamedTuples where the template has no example": ((), (LEARNER,)),
    "NamedTuples where the template has leaves": ((np.zeros(1), np.zeros(1)), (LEARNER,)),
    "leaves where the template has NamedTuples": ((LEARNER,), (1.0, 2.0)),
}


@pytest.mark.parametrize(("template", "state"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_state_of_another_structure_is_refused_and_the_path_is_named(template, state):
    with pytest.raises(snapshot.MismatchError, match="state"):
        decode(encode(state, fingerprint="f"), template, fingerprint="f")


@pytest.mark.parametrize(
    ("template", "state"),
    [
        ((), (1, 2.5, "x", None, (np.zeros(2), ()))),
        ((np.zeros(2),), (np.zeros((2, 2)), np.arange(3))),
        ((np.zeros(2),), ()),
        ((LEARNER,), (LEARNER, LEARNER, LEARNER._replace(count=np.arange(5)))),
        ((LEARNER, LEARNER), ()),
        (((1, LEARNER),), ((2, LEARNER), (3, LEARNER))),
        ((Nothing(),), (Nothing(), Nothing(), Nothing())),
        (np.zeros((0, 3)), np.zeros((7, 0))),
    ],
)
def test_tuples_and_arrays_may_have_another_length_than_the_templates(template, state):
    assert bits(decode(encode(state, fingerprint="f"), template, fingerprint="f")) == bits(state)


UNENCODABLE = [
    np.array([object()]),
    np.zeros(2, dtype=np.float32),
    np.zeros(2, dtype=">f8"),
    np.array(["a"]),
    np.ma.masked_array([1.0]),
    [1.0],
    {"a": 1},
    b"raw",
    1j,
    np.float32(1.0),
    object(),
]


@pytest.mark.parametrize("part", UNENCODABLE, ids=lambda part: f"{type(part).__name__} {getattr(part, 'dtype', '')}")
def test_an_unsupported_value_is_refused_and_its_path_is_named(part):
    with pytest.raises(snapshot.UnencodableError, match=r"^state\.learners\[0\]\.theta must"):
        encode(SMALL._replace(learners=(LEARNER._replace(theta=part),)), fingerprint="f")


def test_every_error_is_a_snapshot_error_and_a_value_error():
    tree = [kind for kind in vars(snapshot).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(tree) == 7
    assert all(issubclass(kind, snapshot.SnapshotError) and issubclass(kind, ValueError) for kind in tree)
