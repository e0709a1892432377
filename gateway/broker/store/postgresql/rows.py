"""The values of rows as their tables' columns, with checksums.

A batch and a copy write the same rows. Messages are not here: each has its own form of columns.
"""

from __future__ import annotations

from gateway.broker.store.checksums import (
    branch_crc,
    destination_crc,
    duplicate_crc,
    subscription_crc,
)
from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    SubscriptionRow,
)

Values = tuple[int | bytes, ...]


def destination_values(row: DestinationRow) -> Values:
    return (
        row.id,
        row.kind,
        row.name.encode(),
        row.properties.encode(),
        row.administered,
        destination_crc(row),
    )


def subscription_values(row: SubscriptionRow) -> Values:
    return (
        row.id,
        row.destination,
        row.client_id.encode(),
        row.name.encode(),
        row.selector.encode(),
        row.no_local,
        subscription_crc(row),
    )


def branch_values(row: BranchRow) -> Values:
    return (
        row.id,
        row.format_id,
        row.gtrid,
        row.bqual,
        row.state,
        row.since,
        row.user.encode(),
        row.work,
        branch_crc(row),
    )


def duplicate_values(row: DuplicateRow) -> Values:
    return row.seq, row.destination, row.at, duplicate_crc(row), row.id


def redelivery_values(row: RedeliveryRow) -> Values:
    return row.seq, row.owner, row.attempts, row.not_before
