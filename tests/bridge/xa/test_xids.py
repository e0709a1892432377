"""Ids: made, and known again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.xa import xids
from bridge.xa.xids import FORMAT_ID, Origin, Run, Unique, Xids
from gateway.messaging.provider import Xid

IDENTITY = b"8 octets"


@given(
    st.text(max_size=80),
    st.binary(min_size=8, max_size=8),
    st.integers(1, 2**32 - 1),
    st.text(max_size=80),
    st.integers(1, 255),
)
def test_what_is_made_is_known_again(
    name: str, identity: bytes, generation: int, ref_name: str, number: int
) -> None:
    ids = Xids(name, identity, generation)
    unique, gtrid = ids.next()
    bqual = xids.bqual(ref_name, number)
    assert 0 < len(gtrid) <= 64
    assert 0 < len(bqual) <= 64
    for xid in (
        Xid(FORMAT_ID, gtrid, bqual),
        Xid(FORMAT_ID, gtrid.ljust(64, b"\0"), bqual.ljust(64, b"\0")),
    ):
        origin = xids.origin(xid)
        assert origin is not None
        assert ids.mine(origin)
        assert ids.made(origin)
        assert origin.unique == unique == Unique(generation, 1)
        assert origin.name == ids.cut_name
        assert xids.without_padding(xid.bqual) == bqual
        found = xids.ref_name(xid.bqual)
        assert found is not None
        assert ref_name.encode("utf-8", "replace").decode().startswith(found)
    assert name.encode("utf-8", "replace").decode().startswith(ids.cut_name)


@given(st.integers(-5, 2**31), st.binary(max_size=70), st.binary(max_size=70))
def test_strangers_are_no_error(format_id: int, gtrid: bytes, bqual: bytes) -> None:
    for given_or_ours in (format_id, FORMAT_ID):
        origin = xids.origin(Xid(given_or_ours, gtrid, bqual))
        assert origin is None or not Xids("here:bridge", IDENTITY, 1).mine(origin)
    xids.ref_name(bqual)
    xids.without_padding(bqual)


def test_no_id_comes_twice_and_later_ones_are_greater() -> None:
    made = [Xids("n", IDENTITY, generation).next() for generation in (1, 2, 2**32 - 1)]
    first = Xids("n", IDENTITY, 1)
    first.next()
    made.insert(1, first.next())
    assert [unique for unique, _ in made] == sorted({unique for unique, _ in made})
    assert len({gtrid for _, gtrid in made}) == len({unique.id for unique, _ in made}) == 4


def test_what_was_not_made_yet_is_known() -> None:
    ids = Xids("n", IDENTITY, 5, [Run(b"a  run  ", 4), Run(b"all runs", 3)])

    def made(identity: bytes, generation: int, counter: int) -> tuple[bool, bool]:
        origin = Origin("n", identity, Unique(generation, counter))
        return ids.mine(origin), ids.made(origin)

    assert made(IDENTITY, 5, 1) == (True, False)
    ids.next()
    assert made(IDENTITY, 5, 1) == (True, True)
    assert made(IDENTITY, 5, 2) == made(IDENTITY, 6, 1) == (True, False)
    assert made(b"a  run  ", 4, 77) == made(b"all runs", 1, 77) == (True, True)
    assert made(b"a  run  ", 5, 1) == made(b"all runs", 4, 1) == (True, False)
    assert made(b"unknown!", 4, 1) == (False, False)


def test_the_length_of_names() -> None:
    assert len(Xids("ä" * 60, IDENTITY, 1).next()[1]) in (63, 64)
    assert len(xids.bqual("x" * 62, 1)) == 64
    assert xids.ref_name(xids.bqual("x" * 63, 1)) == "x" * 62


@pytest.mark.parametrize(
    ("identity", "generation"), [(b"short", 1), (IDENTITY, 0), (IDENTITY, 2**32)]
)
def test_bad_ids(identity: bytes, generation: int) -> None:
    with pytest.raises(ValueError, match=r"identity|generation"):
        Xids("n", identity, generation)


@pytest.mark.parametrize("number", [0, 256])
def test_bad_branches(number: int) -> None:
    with pytest.raises(ValueError, match="branch"):
        xids.bqual("r", number)
