"""Compare two configurations of one bridge, for a reload.

A reload restarts only the links that changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.config.model import Bridge, ConnectionFactory, Destination, Dmq, Link


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of what differs, in the order of the new file.

    Removed links are in the order of the old file.

    A link is unchanged only if all that it uses is: its connection factories and destinations too.
    A link with a message transformer, which can send anywhere by name, uses every destination of
    the file. Descriptions, and the order of links in the file, make no difference.

    :param removed: links that only the old file has.
    :param changed: links that must be restarted.
    :param unchanged: links that go on.
    :param connection_factories: those changed, added or removed. Their pooled and shared
        connections must not be used any more.
    :param destinations: those changed, added or removed.
    :param dmqs: whether a dead message queue changed, or their order; also where one has a message
        transformer, which any connection factory of the file may run, and one of these changed.
    :param message_transfer_tag_bridge_name: whether this attribute changed. Links that go on apply
        it from their next message; likewise ``log_message_transfer``.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    connection_factories: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    dmqs: bool = False
    message_transfer_tag_bridge_name: bool = False
    log_message_transfer: bool = False

    def __bool__(self) -> bool:
        """Whether anything changed at all."""
        links = self.added or self.removed or self.changed
        attributes = self.message_transfer_tag_bridge_name or self.log_message_transfer
        return bool(
            links or self.connection_factories or self.destinations or self.dmqs or attributes
        )


def changes(before: Bridge, after: Bridge) -> Changes:
    """Compare two configurations.

    :raises ValueError: they have different names, so they are of two bridges.
    """
    if before.name != after.name:
        raise ValueError(
            f"the bridges {before.name} and {after.name} cannot be compared: they are two"
        )
    old = {link.name: link for link in before.links}
    new = {link.name: link for link in after.links}
    destinations = _different(before.destinations, after.destinations)
    factories = _different(before.connection_factories, after.connection_factories)
    same = {
        name
        for name, link in new.items()
        if link == old.get(name) and not (_may_branch(link) and destinations)
    }
    return Changes(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and name not in same),
        unchanged=tuple(name for name in new if name in same),
        destinations=destinations,
        connection_factories=factories,
        dmqs=_chain(before) != _chain(after) or bool(factories and _may_use_any(after)),
        message_transfer_tag_bridge_name=before.message_transfer_tag_bridge_name
        != after.message_transfer_tag_bridge_name,
        log_message_transfer=before.log_message_transfer != after.log_message_transfer,
    )


def _different(
    before: Iterable[ConnectionFactory] | Iterable[Destination],
    after: Iterable[ConnectionFactory] | Iterable[Destination],
) -> tuple[str, ...]:
    """Return the names of those that are not in both, or differ."""
    old, new = {one.ref_name: one for one in before}, {one.ref_name: one for one in after}
    return (
        *(name for name in new if old.get(name) != new[name]),
        *(name for name in old if name not in new),
    )


def _may_branch(link: Link) -> bool:
    return link.target.message_transformer_class is not None


def _may_use_any(bridge: Bridge) -> bool:
    """Whether any factory may run the class of a dead message queue."""
    return any(dmq.message_transformer_class is not None for dmq in _chain(bridge))


def _chain(bridge: Bridge) -> tuple[Dmq, ...]:
    return (bridge.built_in_dmq, *bridge.dmqs)
