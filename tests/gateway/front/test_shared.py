"""Connections that are shared, where the broker refuses or is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from gateway.front.shared import SharedProvider
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials

GUEST = Credentials("guest", "guest")


class AtOnce:
    """A provider that answers at once, as one does whose Java process is gone.

    :param answers: what becomes of each attempt to connect.
    """

    capabilities = Capabilities()
    resource = "at once"

    def __init__(self, *answers: MessagingError | None) -> None:
        self._answers = list(answers)
        self.opened: list[Any] = []

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        answer = self._answers.pop(0)
        if answer is not None:
            return fail(answer)
        connection: Any = object()
        self.opened.append(connection)
        return succeed(connection)


def lost(error: MessagingError) -> None:
    raise AssertionError(f"it is lost: {error}")


def outcome(connecting: Deferred[Connection]) -> Any:
    found: list[Any] = []
    connecting.addBoth(found.append)
    [result] = found
    return getattr(result, "value", result)


def test_a_refusal_at_once_is_told_and_the_next_attempt_is_another() -> None:
    away = ProviderUnavailable("it is started again in 2 s")
    behind = AtOnce(away, None)
    shared = SharedProvider(behind, Clock(), 2)
    assert outcome(shared.connect(GUEST, None, lost)) is away
    first = outcome(shared.connect(GUEST, None, lost))
    assert first.error is None
    assert len(behind.opened) == 1


def test_users_share_as_many_connections_as_there_may_be() -> None:
    behind = AtOnce(*[None] * 3)
    shared = SharedProvider(behind, Clock(), 3)
    users = [outcome(shared.connect(GUEST, None, lost)) for _ in range(9)]
    assert len(behind.opened) == 3
    assert len({id(user.line) for user in users}) == 3
