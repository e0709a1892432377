"""What SIGHUP has read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from certs.files import CertificateFileError
from gateway.broker.security.access import AccessError
from gateway.broker.security.users import UsersError
from gateway.central import CentralProperties, CentralUnreadable
from gateway.instance.settings import SettingsError

_log = Logger(namespace="gateway.app")


def fetch_before(
    reactor: Any, central: CentralProperties | None, then: Callable[[], None]
) -> Callable[[], None]:
    """Return what fetches central properties first, without blocking.

    Then it calls ``then``. Where they cannot be fetched, the last ones stay, and the log says so.
    What is asked for while they are being fetched is done once after that.
    """
    asked = 0

    def begin() -> None:
        nonlocal asked
        if central is None or not central.is_remote:
            then()
            return
        asked += 1
        if asked > 1:
            return

        def over(_: object) -> None:
            nonlocal asked
            again, asked = asked > 1, 0
            if again:
                begin()

        def failed(failure: Failure) -> None:
            if not isinstance(failure.value, CentralUnreadable):
                failure.raiseException()
            _log.error("central properties stay as they were: {error}", error=failure.value)

        fetching = deferToThreadPool(reactor, reactor.getThreadPool(), central.fetch)
        fetching.addErrback(failed)
        fetching.addCallback(lambda _: then())
        fetching.addErrback(lambda failure: _log.failure("the reload failed", failure))
        fetching.addBoth(over)

    return begin


def read_again(parts: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Read each part again; one that cannot be used stays as it was.

    The log says what became of each.

    :param parts: each with what it is called.
    """
    for what, reload in parts:
        try:
            reload()
        except (UsersError, AccessError, CertificateFileError, SettingsError, OSError) as error:
            _log.error(
                "{what} stay as they were: {error}",
                what=what,
                error="; ".join(str(error).splitlines()),
                event="configuration.refused",
            )
        else:
            _log.info(
                "{what} were {done}",
                what=what,
                done="reopened" if what == "log files" else "read again",
                event="configuration.reloaded",
            )
