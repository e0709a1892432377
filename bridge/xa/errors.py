"""The errors of global transactions.

That of a one-phase commit whose answer was lost is
:class:`gateway.messaging.errors.OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.messaging.errors import MessagingError


class TransactionError(MessagingError):
    """The base class of these errors."""


class RolledBack(TransactionError):
    """Nothing happened anywhere, and it may be tried again.

    A resource manager that cannot be reached now may hold its branch until its recovery rolls it
    back.

    :param cause: what a resource manager answered, or :class:`LogFailed` where the disk of the log
        is full.
    :param ref_name: the ``ref-name`` of the factory whose resource manager it was; "" where it was
        none.
    """

    def __init__(self, cause: MessagingError, ref_name: str) -> None:
        at = f" by '{ref_name}'" if ref_name else ""
        super().__init__(f"the transaction is rolled back{at}: {cause}")
        self.cause = cause
        self.ref_name = ref_name


class Heuristic(TransactionError):
    """Final and not clean: a resource manager decided against the others.

    Listed until an operator has it forgotten.

    :param id: the transaction's.
    :param outcomes: by ``ref-name``, what is known of its branch: one of the words of
        :class:`bridge.xa.status.BranchState`.
    """

    def __init__(self, id: str, outcomes: Mapping[str, str]) -> None:
        told = ", ".join(f"'{ref_name}' {outcome}" for ref_name, outcome in outcomes.items())
        super().__init__(f"transaction {id} ended heuristically: {told}")
        self.outcomes = dict(outcomes)


class LogFailed(TransactionError):
    """The decision log cannot be written.

    Nothing may be decided until the bridge is restarted, which reads what is on the disk.

    A transaction whose commit fails so stays prepared, and the log says at the next start how it
    goes on. As the ``cause`` of :class:`RolledBack` it is a :class:`NotWritten`.

    :param file: the log.
    :param reason: what the disk said.
    """

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"the transaction log {file} cannot be written: {reason}")
        self.file = file
        self.reason = reason


class NotWritten(LogFailed):
    """The record is certainly not in the log. The next write may succeed.

    The disk is full, or the log is closed.
    """


class LogDamaged(TransactionError):
    """The log is damaged before records that are good.

    It is not opened, and not changed.

    :param file: the log.
    :param offset: the byte from which on it cannot be understood.
    """

    def __init__(self, file: Path | str, offset: int, reason: str) -> None:
        super().__init__(
            f"the transaction log {file} is damaged at octet {offset}: {reason}; restore it, or move it away and complete the branches "
            "that are in doubt at their brokers by hand"
        )
        self.offset = offset


class UnknownTransaction(TransactionError):
    """There is no such transaction now."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no transaction '{id[:80]}'")


class WrongState(TransactionError):
    """The operation is not possible in the transaction's state.

    :param state: the current one.
    :param expected: the state that is needed, or what to do instead.
    """

    def __init__(self, id: str, operation: str, state: str, expected: str) -> None:
        super().__init__(f"cannot {operation} transaction {id}, which is {state}: {expected}")


class TooManyBranches(TransactionError):
    """One byte counts the branches of a transaction."""

    def __init__(self, id: str, most: int) -> None:
        super().__init__(f"transaction {id} has {most} branches, and can have no more")


class Misuse(TransactionError):
    """A call or event that the transaction's state does not allow.

    A mistake of the caller, never of a resource manager.
    """
