"""Columns of rows as arrays in PostgreSQL's binary format.

psycopg writes a list element by element in Python; the columns of a batch have thousands, and the
store's thread shares the interpreter lock with a busy reactor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Final

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

# Object ids that PostgreSQL never changes (pg_type.dat).
_INT8: Final = 20
_INT8_ARRAY: Final = 1016
_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001

#: Dimensions, whether there are NULLs, type of the elements, their number, the first one's index.
_HEAD: Final = struct.Struct(">iiIii").pack
_EMPTY: Final = struct.Struct(">iiI").pack
_LENGTH: Final = struct.Struct(">i").pack


class BigInts:
    """An array of bigint, as a parameter.

    :raises struct.error: a number has more than 64 bits.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        elements = struct.pack(
            ">" + "iq" * count, *chain.from_iterable(zip(repeat(8), numbers, strict=False))
        )
        self.octets = _array(_INT8, count, elements)


class Octets:
    """An array of bytea, as a parameter."""

    def __init__(self, values: Sequence[bytes]) -> None:
        lengths = map(_LENGTH, map(len, values))
        elements = b"".join(chain.from_iterable(zip(lengths, values, strict=True)))
        self.octets = _array(_BYTEA, len(values), elements)


def columns(rows: Iterable[Sequence[int | bytes]]) -> list[BigInts | Octets]:
    """The columns of rows, of which there is at least one, as parameters."""
    return [
        Octets(column) if isinstance(column[0], bytes) else BigInts(column)
        for column in zip(*rows, strict=True)
    ]


def _array(element: int, count: int, elements: bytes) -> bytes:
    if not count:
        return _EMPTY(0, 0, element)
    return _HEAD(1, 0, element, count, 1) + elements


class BigIntsDumper(Dumper):
    """How psycopg writes :class:`BigInts`."""

    format = Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: BigInts) -> Buffer:
        return obj.octets


class OctetsDumper(Dumper):
    """How psycopg writes :class:`Octets`."""

    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Octets) -> Buffer:
        return obj.octets
