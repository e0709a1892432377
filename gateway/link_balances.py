"""Where the balances of a bridge's links are kept: a file of its folder.

Part of the composition: it joins :mod:`bridge.link.balance` with the instance's files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock

from bridge.link.balance import BalancesNotKept
from gateway.instance.layout import Layout, make_directory, replace
from gateway.reactor.deferreds import alone_on_thread


class BalancesInFile:
    """The balances of one bridge.

    Implements :class:`~bridge.link.balance.BalanceStorage`.
    """

    def __init__(self, reactor: Any, layout: Layout, bridge: str) -> None:
        self._reactor: Final = reactor
        self._path: Final = layout.bridge_balances(bridge)
        self._turn: Final = DeferredLock()

    def read(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise BalancesNotKept(f"{self._path} cannot be read: {error}") from error
        if not isinstance(found, Mapping):
            raise BalancesNotKept(f"{self._path}: expected the balances of links by name")
        return found

    def write(self, balances: Mapping[str, Any]) -> Deferred[None]:
        return Deferred.fromCoroutine(self._write(json.dumps(balances).encode()))

    async def _write(self, data: bytes) -> None:
        def write() -> None:
            make_directory(self._path.parent)
            replace(self._path, data)

        try:
            await alone_on_thread(self._reactor, self._turn, write)
        except OSError as error:
            raise BalancesNotKept(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
