"""Gateways that share a broker, each with its own files and ports.

Owns the processes and who of them owns the broker. What clients were promised is
:mod:`tests.crash.load`'s.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from tests.crash.accounting import check
from tests.crash.client import PATIENCE
from tests.crash.load import Load
from tests.crash.waiting import until
from tests.gateway_process import HOST, GatewayFailed, GatewayProcess, free_port

BROKER: Final = "orders"
#: Seconds without an answer after which a process is taken for one that is stopped.
STOPPED: Final = 10.0


class Machine(GatewayProcess):
    """A process of the broker.

    :param url: of the database, with its password.
    :param settings: more of them.
    :param environment: in the place of this process's.
    :param broker: its id.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        broker: str = BROKER,
    ) -> None:
        self.health_port = free_port()
        self.name = name
        parts = urlsplit(url)
        self._password = unquote(parts.password or "")
        login, _, place = parts.netloc.rpartition("@")
        self._passfile = folder / f"{name}.passfile"
        self._passfile.write_text(
            # The second is that of bridges at their own broker.
            f"imq.persist.jdbc.password={self._password}\nimq.bridge.admin.password=guest\n"
        )
        self._passfile.chmod(0o600)
        super().__init__(
            folder / name,
            store="jdbc",
            environment=environment,
            settings={
                "imq.bridge.admin.user": "guest",
                **(settings or {}),
                "imq.persist.jdbc.postgresql.opendburl": parts._replace(netloc=place).geturl(),
                "imq.persist.jdbc.postgresql.user": login.partition(":")[0],
                "imq.passfile.enabled": "true",
                "imq.passfile.dirpath": str(folder),
                "imq.passfile.name": self._passfile.name,
                "imq.brokerid": broker,
                "imq.cluster.ha": "true",
                "imq.cluster.nodename": name,
                "imq.health.port": str(self.health_port),
            },
        )

    def join(self, other: Machine) -> None:
        """Have what an operator copies: settings, users and passwords."""
        shutil.copytree(other.directory / "etc", self.directory / "etc")

    def begin(self) -> None:
        """Start the process, and return when it owns the broker or stands by.

        :raises GatewayFailed: it ended instead.
        """
        self.launch()
        try:
            until(
                lambda: "is ready" in self.said or "standing by: " in self.said or self.silent,
                lambda: f"{self.name} neither serves nor stands by:\n{self.said}",
            )
        except AssertionError:
            self.kill()
            raise
        if self.silent:
            raise GatewayFailed(f"{self.name} ended with {self.wait()}:\n{self.said}")

    @property
    def silent(self) -> bool:
        """Whether it has ended, or prints no more."""
        return self._silent

    def health(self, what: str = "ready", patience: float = PATIENCE) -> tuple[int, dict[str, Any]]:
        """The status and the answer of its health service; 0 for no answer.

        :param patience: seconds to wait for one.
        """
        connection = HTTPConnection(HOST, self.health_port, timeout=patience)
        try:
            connection.request("GET", f"/{what}")
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException):
            return 0, {}
        finally:
            connection.close()

    @property
    def ready(self) -> bool:
        """Whether it says that it serves; a process that is stopped says nothing."""
        return self.health(patience=STOPPED)[0] == 200


def ready_one(machines: list[Machine]) -> Machine | None:
    """The first that serves, if one does."""
    return next((machine for machine in machines if machine.ready), None)


class Machines:
    """Several processes of one broker, and the loads that they are given.

    :ivar found: messages that new owners had, in all.
    """

    def __init__(self, folder: Path, url: str, *names: str) -> None:
        self.all = [Machine(folder, name, url) for name in names]
        self.found = 0
        self._epoch = 0

    def start(self) -> None:
        """Start all, one after the other: the first owns the broker."""
        first, *others = self.all
        first.begin()
        for machine in others:
            machine.join(first)
            machine.begin()

    @property
    def owner(self) -> Machine:
        """The one that serves, waited for."""
        return until(lambda: ready_one(self.all), self.told)

    def standbys(self, owner: Machine) -> list[Machine]:
        return [machine for machine in self.all if machine is not owner]

    def load(self, seed: int) -> Load:
        """Clients at the owner, which have been promised something."""
        self._epoch += 1
        load = Load(self.owner.port, self._epoch, seed)
        load.start()
        return load

    def until_taken_over(self, owner: Machine) -> tuple[Machine, float]:
        """Wait until another one serves.

        :returns: that one, and the seconds it took.
        """
        began = time.monotonic()
        others = self.standbys(owner)
        return until(lambda: ready_one(others), self.told), time.monotonic() - began

    def account(self, load: Load, owner: Machine) -> int:
        """Compare what clients were told with what the new owner has."""
        load.join()
        found = check(load, owner.port)
        self.found += found
        return found

    def told(self) -> str:
        return "\n".join(f"{machine.name}:\n{machine.said}{machine.log}" for machine in self.all)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        for machine in self.all:
            machine.kill()
