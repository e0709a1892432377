"""Why messages wait, as open pages ask.

They ask seldom for each thing, however often they look.

Owns how long an explanation is believed. Finding one samples what waits, which costs more than a
page does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.admin.service.requests import AdminRequest, Routes, refusal
from gateway.admin.why.cause import Answer

#: Seconds for which an explanation is believed.
BELIEVED_S: Final = 10.0
_MOST_KEPT: Final = 200


class Explained:
    """Asks why, and remembers the answers.

    :param seconds: a monotonic clock.
    """

    def __init__(self, routes: Routes, seconds: Callable[[], float]) -> None:
        self._routes: Final = routes
        self._seconds: Final = seconds
        #: By what was asked, the oldest answer first.
        self._kept: dict[tuple[str, ...], tuple[float, Answer | None]] = {}

    async def why(self, asked: AdminRequest, what: str, **query: str) -> Answer | None:
        """Return why something is not delivered; None where that cannot be told.

        :param what: ``destination``, ``message``, ``connection`` or ``link``.
        :param query: which, by the parameters of that resource.
        """
        key = (what, *query.values())
        kept = self._kept.get(key)
        if kept is not None and self._seconds() < kept[0] + BELIEVED_S:
            return kept[1]
        answer: Answer | None = None
        try:
            answer = await self._routes.perform(
                "GET", f"/v1/why/{what}", AdminRequest(asked.user, query, {}, asked.role)
            )
        except Exception as error:
            # It may have gone meanwhile.
            if refusal(error) is None:
                raise
        self._kept.pop(key, None)
        self._kept[key] = (self._seconds(), answer)
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return answer
