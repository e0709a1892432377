"""What a broker's dialect of STOMP means to the bridge: its capabilities, and the names by which a
configuration declares it.

The table of brokers is :mod:`gateway.stomp.brokers`.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.provider import Capabilities
from gateway.stomp.brokers import BROKERS, GENERIC, Dialect

#: The dialects that ``stomp.dialect`` may name.
DIALECTS: Final = {**BROKERS, GENERIC.name: GENERIC}


def capabilities_of(dialect: Dialect) -> Capabilities:
    """Return what a provider to such a broker can do."""
    return Capabilities(
        transacted=dialect.transacted,
        joined=dialect.joined,
        durable=dialect.durable,
        selectors=dialect.selectors,
        browse=dialect.browse,
        individual=dialect.individual,
        delivery_count=dialect.delivery_count,
        duplicate_ids=dialect.duplicate_ids,
        stable_ids=dialect.stable_ids,
    )
