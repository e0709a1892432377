"""Transaction branches that an earlier run of the process left.

What they hold comes to no queue when the store is scanned.

Owns who holds which message until the scan has come to it. Where messages wait is
:mod:`gateway.broker.durability.recovery`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.broker.store.interface import IndexRow, Store, StoreError
from gateway.broker.xa.branch import Branch, restored
from gateway.messaging.xa import xid_text

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.core.dispatch import Dispatched
    from gateway.broker.core.queue import PhysicalQueue
    from gateway.broker.core.topic import PhysicalTopic


class Holdings:
    """What prepared branches hold.

    :raises StoreError: a branch cannot be read. The broker knows all of them then.
    """

    def __init__(self, broker: Broker, store: Store) -> None:
        self._sent: Final[dict[int, Branch]] = {}
        self._taken: Final[dict[tuple[int, int], Branch]] = {}
        self._open: Final = broker.sent_in_branches
        for block in store.scan_branches():
            for row in block:
                branch, sent, taken = restored(row)
                broker.branches.restore(branch)
                self._sent.update(dict.fromkeys(sent, branch))
                self._taken.update(dict.fromkeys(taken, branch))

    def sent(self, row: IndexRow, physical: PhysicalQueue | PhysicalTopic | None) -> bool:
        """Whether a branch has sent this message, which then must not wait.

        :param physical: where it goes.

        :raises StoreError: that is missing.
        """
        branch = self._sent.pop(row.seq, None) if self._sent else None
        if branch is None:
            return False
        if physical is None:
            raise StoreError(
                f"the store holds branch {xid_text(branch.xid)} (row {branch.id}) that has sent message {row.seq} to destination "
                f"{row.destination}, which is missing"
            )
        branch.unread_sends.append((physical, row))
        self._open.add(row.seq)
        branch.sent += 1
        physical.hold(1, row.size)
        return True

    def taken(self, row: IndexRow, source: Dispatched) -> bool:
        """Whether a branch has acknowledged this message.

        It counts at its source then, and must not wait there.
        """
        branch = self._taken.pop((source.owner, row.seq), None) if self._taken else None
        if branch is None:
            return False
        branch.unread_taken.append((source, row))
        branch.acknowledged += 1
        source.dispatch.locked += 1
        return True

    def was_taken(self, owner: int, seq: int) -> bool:
        """Whether a branch has acknowledged this message.

        The durable subscription that had it no longer exists.
        """
        return (owner, seq) in self._taken

    def check(self) -> None:
        """Check, after the scan, that every message sent by a branch exists.

        What branches have acknowledged may be missing, with its durable subscription.

        :raises StoreError: one is missing.
        """
        for seq, branch in self._sent.items():
            raise StoreError(
                f"the store holds branch {xid_text(branch.xid)} (row {branch.id}) that has sent message {seq}, which is missing"
            )
