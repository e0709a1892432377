"""What the checksum of a stored row is made of, whatever keeps it.

A row is checked when it is read, so that no disk, file system or database is trusted with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    SubscriptionRow,
)

#: The columns of a message that its checksum begins with, as octets: seq, destination, priority,
#: expires, size, persistent.
NARROW: Final = struct.Struct("<6q").pack
#: Those of a duplicate id: seq, destination, at.
REMEMBERED: Final = struct.Struct("<3q").pack
#: Those of a branch that are numbers: id, format, state, since, and the lengths of gtrid and bqual.
BRANCH: Final = struct.Struct("<6q").pack
#: Those of a destination that are numbers: id, kind, administered, and the lengths of name and
#: properties.
DESTINATION: Final = struct.Struct("<5q").pack
#: Those of a subscription that are numbers: id, destination, no_local, and the lengths of
#: client_id, name and selector.
SUBSCRIPTION: Final = struct.Struct("<6q").pack


def message_crcs(
    seqs: Iterable[int],
    destinations: Iterable[int],
    priorities: Iterable[int],
    expiries: Iterable[int],
    sizes: Iterable[int],
    persistent: Iterable[int],
    heads: Iterable[bytes],
    bodies: Iterable[bytes],
) -> Iterator[int]:
    """The checksums of messages, whose columns these are.

    All of it runs in C, as the store's thread shares the interpreter lock with a busy reactor.
    """
    numbers = map(NARROW, seqs, destinations, priorities, expiries, sizes, persistent)
    return map(crc32, bodies, map(crc32, heads, map(crc32, numbers)))


def branch_crc(row: BranchRow) -> int:
    """The checksum of a branch.

    :raises TypeError, struct.error: a column has a type that the store never writes.
    """
    numbers = BRANCH(row.id, row.format_id, row.state, row.since, len(row.gtrid), len(row.bqual))
    return crc32(
        row.work, crc32(row.user.encode(), crc32(row.bqual, crc32(row.gtrid, crc32(numbers))))
    )


def duplicate_crc(row: DuplicateRow) -> int:
    """The checksum of a duplicate id.

    :raises TypeError, struct.error: a column has a type that the store never writes.
    """
    return crc32(row.id, crc32(REMEMBERED(row.seq, row.destination, row.at)))


def destination_crc(row: DestinationRow) -> int:
    """The checksum of a destination.

    :raises AttributeError, TypeError, struct.error: a column has a type that the store never
        writes.
    """
    name, properties = row.name.encode(), row.properties.encode()
    return crc32(
        properties,
        crc32(
            name, crc32(DESTINATION(row.id, row.kind, row.administered, len(name), len(properties)))
        ),
    )


def subscription_crc(row: SubscriptionRow) -> int:
    """The checksum of a subscription.

    :raises AttributeError, TypeError, struct.error: a column has a type that the store never
        writes.
    """
    client_id, name, selector = row.client_id.encode(), row.name.encode(), row.selector.encode()
    numbers = SUBSCRIPTION(
        row.id, row.destination, row.no_local, len(client_id), len(name), len(selector)
    )
    return crc32(selector, crc32(name, crc32(client_id, crc32(numbers))))
