"""Lines of the log that say who changed what, or read what is not for all.

Owns their form for requests over HTTP, by which commands ask, too, and for those that come as
messages. What an operator does in the console has lines of the same form with the command. Bodies of messages, passwords and documents
are in none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from twisted.logger import Logger

from gateway.instance.problems import printable

#: Parameters that say what a request is about. Others may be secret, or long.
_NAMED: Final = (
    "type",
    "name",
    "id",
    "job_id",
    "client_id",
    "connection",
    "destination",
    "bridge",
    "link",
    "service",
    "xid",
    "topic",
    "dmq",
    "selector",
    "to",
    "broker",
    "operation",
    "pause",
    "level",
    "limit",
    "loopback",
    "active",
    "groups",
    "use_dmq",
    "dry_run",
)
#: Characters of a value.
_LONGEST: Final = 300


class AuditLine:
    """One request that is told of when it has ended.

    :param log: gets the line.
    :param host: from where it was asked.
    :param path: the request's, as it was sent.
    :param given: its parameters, of the URL and of the body.
    :param way: by what it was asked.
    """

    _DID: ClassVar = "audit: {user} from {host} did by {way}: {request}: {outcome}"
    _REFUSED: ClassVar = "audit: {user} from {host} was refused by {way}: {request}: {text}"

    def __init__(
        self,
        log: Logger,
        user: str,
        host: str,
        method: str,
        path: str,
        given: Mapping[str, object],
        way: str = "HTTP",
    ) -> None:
        self._log: Final = log
        words = [
            f"{name}={shlex.quote(printable(str(given[name])[:_LONGEST]))}"
            for name in _NAMED
            if name in given and given[name] not in ("", None, False)
        ]
        self._said: Final = {"user": user, "host": host, "way": way}
        self._request: Final = " ".join([method, path, *words])

    def done(self, answer: Any) -> None:
        """It was carried out. :param answer: what the client gets."""
        counts = (
            [
                f"{name} {value}"
                for name, value in answer.items()
                if isinstance(value, int) and not isinstance(value, bool)
            ]
            if isinstance(answer, Mapping)
            else []
        )
        outcome = ", ".join(counts) or "done"
        self._log.info(self._DID, **self._said, request=self._request, outcome=outcome)

    def refused(self, text: str) -> None:
        """It was not. :param text: why, a sentence."""
        self._log.info(self._REFUSED, **self._said, request=self._request, text=printable(text))
