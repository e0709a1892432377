"""Where the balances of a bridge's links are kept: files of its folder.

Part of the composition: it joins :mod:`bridge.link.balances` with the instance's files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from twisted.internet.defer import Deferred, DeferredLock

from bridge.link.balance import BalancesNotKept
from gateway.instance.layout import PRIVATE_FILE, Layout, make_directory, replace
from gateway.reactor.deferreds import alone_on_thread

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class BalancesInFile:
    """The balances of one bridge.

    Implements :class:`~bridge.link.balances.BalanceStorage`.
    """

    def __init__(self, reactor: Any, layout: Layout, bridge: str) -> None:
        self._reactor: Final = reactor
        self._path: Final = layout.bridge_balances(bridge)
        self._marks: Final = layout.bridge_balance_marks(bridge)
        self._turn: Final = DeferredLock()
        self.boot: Final = _boot()

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

    def marks(self, link: str) -> MarksInFiles:
        return MarksInFiles(self._marks, link)

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


def _boot() -> int:
    """Return the number of the machine's start; 0 if it is unknown."""
    try:
        return int(UUID(_BOOT.read_text().strip())) & 0x7FFFFFFFFFFFFFFF
    except (OSError, ValueError):
        return 0


class MarksInFiles:
    """The marks of one link: two small files, written by turns, in place.

    Implements :class:`~bridge.link.balance.BalanceMarks`. A write goes to the kernel alone: it
    takes some microseconds, and is there when the process is killed.

    :param folder: made with the first write.
    """

    def __init__(self, folder: Path, link: str) -> None:
        name = quote(link, safe="")
        self._paths: Final = tuple(folder / f"{name}.{place}" for place in range(2))
        self._descriptors: Final[dict[int, int]] = {}

    def read(self) -> Sequence[bytes]:
        found = []
        for path in self._paths:
            try:
                found.append(path.read_bytes())
            except FileNotFoundError:
                continue
            except OSError as error:
                raise BalancesNotKept(f"{path} cannot be read: {error.strerror}") from error
        return found

    def write(self, place: int, data: bytes) -> None:
        path = self._paths[place]
        try:
            descriptor = self._descriptors.get(place)
            if descriptor is None:
                make_directory(path.parent)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
                self._descriptors[place] = descriptor
            written = os.pwrite(descriptor, data, 0)
        except OSError as error:
            raise BalancesNotKept(f"{path} cannot be written: {error.strerror or error}") from error
        if written != len(data):
            raise BalancesNotKept(f"{path} cannot be written: the disk is full")

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
