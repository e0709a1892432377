"""The gateway over PostgreSQL, with and without a synchronous standby.

The database runs on this machine, with its own defaults except for addresses. Its processor time is
not counted as the gateway's, and its data is in the system's folder for temporary files.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from benchmarks.peers import Gateway, NotReady, Peer
from benchmarks.process import ProcessTree
from tests.postgresql import Cluster


class PostgresqlGateway(Gateway):
    """The gateway with a store jdbc, over a server of PostgreSQL of its own."""

    name = "postgresql"
    standby: ClassVar[bool] = False

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self._cluster: Cluster | None = None
        self._url = ""

    def _launch(self) -> ProcessTree:
        if self._cluster is None:
            self._cluster = Cluster()
            atexit.register(self._cluster.close)
            self._cluster.start()
            if self.standby:
                self._cluster.standby()
            self._url = self._cluster.database()
            self._create_tables()
        return super()._launch()

    def settings(self) -> dict[str, str]:
        parts = urlsplit(self._url)
        passfile = self.folder / "passfile"
        passfile.write_text(f"imq.persist.jdbc.password={unquote(parts.password or '')}\n")
        passfile.chmod(0o600)
        place = parts.netloc.rpartition("@")[2]
        return super().settings() | {
            "imq.persist.store": "jdbc",
            "imq.persist.jdbc.postgresql.opendburl": parts._replace(netloc=place).geturl(),
            "imq.persist.jdbc.postgresql.user": parts.username or "",
            "imq.passfile.enabled": "true",
            "imq.passfile.dirpath": str(self.folder),
        }

    def _create_tables(self) -> None:
        arguments = [str(Path(sys.executable).parent / "imqdbmgr"), "create", "tbl"]
        arguments += ["--varhome", str(self.folder / "var"), "--instance", "bench"]
        arguments += [f"-D{name}={value}" for name, value in self.settings().items()]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotReady(f"imqdbmgr made no tables: {done.stdout}{done.stderr}")


class ReplicatedGateway(PostgresqlGateway):
    """The same with a synchronous standby.

    That has each commit on disk before it is confirmed.
    """

    name = "replicated"
    standby = True


#: Not among those that are compared unless they are asked for.
PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (PostgresqlGateway, ReplicatedGateway)}
