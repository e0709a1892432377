"""Real PostgreSQL servers for tests: primaries and synchronous standbys.

Owns the processes and their folder below the folder for temporary files. Knows nothing of the
store that is tested. Nothing here sleeps for a fixed time: it waits for conditions, with a deadline.

Blocks, so it is for tests that run no reactor of their own, and for fixtures. :mod:`tests.conftest`
has the fixtures. The network between a store and its server is
:class:`tests.faults.proxy.Proxy`'s.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from contextlib import closing
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

import psutil
import psycopg

from benchmarks.process import end_with_parent
from tests.crash.waiting import until
from tests.gateway_process import HOST, free_port

#: How long a statement or the start or end of a server may take, in seconds.
PATIENCE: Final = 60.0
#: The oldest release that is supported.
OLDEST: Final = 15
#: The superuser, and the account of the system that runs the server if the tests run as root.
SUPERUSER: Final = "postgres"
_INSTALLED: Final = Path("/usr/lib/postgresql")
#: What differs from the defaults. fsync is not here: it stays on, because servers are killed.
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # In the cluster's folder, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    # A standby tries to reach its primary that often. The default is 5 s.
    "wal_retrieve_retry_interval": "100ms",
    "log_line_prefix": "%m [%p] %u@%d ",
}
_numbers: Final = itertools.count(1)


class ClusterFailed(Exception):
    """A command failed, or the server ended too early.

    The text has what it printed.
    """


class Stop(Enum):
    """How a server is asked to end; its value is the signal."""

    #: Waits until all clients are gone.
    SMART = signal.SIGTERM
    #: Rolls back what runs, and ends all connections.
    FAST = signal.SIGINT
    #: Without a checkpoint: the next start recovers.
    IMMEDIATE = signal.SIGQUIT


def binaries() -> Path:
    """Return the folder with the commands of the newest release.

    :raises FileNotFoundError: no release from :data:`OLDEST` on is installed.
    """
    releases = [int(path.name) for path in _INSTALLED.glob("*") if path.name.isdigit()]
    found = [each for each in releases if each >= OLDEST and _bin(each, "initdb").exists()]
    if not found:
        raise FileNotFoundError(
            f"no PostgreSQL {OLDEST} or later below {_INSTALLED}; tests/install-packages installs it"
        )
    return _bin(max(found))


def _bin(release: int, *names: str) -> Path:
    return _INSTALLED.joinpath(str(release), "bin", *names)


def at(url: str, *ports: int) -> str:
    """Return the URL of the same database on other ports of 127.0.0.1.

    One port is that of a proxy or of a promoted standby. Several are for a client that tries one
    after the other.
    """
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{','.join(f'{HOST}:{port}' for port in ports)}").geturl()


class Cluster:
    """One server over its data, which are made by the first :meth:`start`.

    As a context manager it starts. At the end nothing is left of it or of its standbys, whatever
    state they are in. Start it from a thread that lives as long: Linux kills it with that thread,
    so that not even a killed test run leaves servers behind.

    :ivar port: where it listens on 127.0.0.1, the same after each start.
    :ivar password: the superuser's.
    """

    def __init__(self) -> None:
        self.port: Final = free_port()
        self.password = secrets.token_urlsafe()
        self.folder: Final = Path(tempfile.mkdtemp(prefix="postgresql-"))
        #: More of the server's environment, from its next start on.
        self.environment: dict[str, str] = {}
        self._as_owner: dict[str, Any] = {}
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            account = pwd.getpwnam(SUPERUSER)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._as_owner = {
                "user": account.pw_uid,
                "group": account.pw_gid,
                "extra_groups": [],
            }
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._standbys: list[Cluster] = []

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """What it has printed since it was made, for messages of failed tests."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- its processes

    def start(self) -> None:
        """Start it, and return once it answers statements.

        :raises ClusterFailed: it ended instead.
        :raises AssertionError: it was not ready in time.
        """
        if self._postmaster is not None:
            raise RuntimeError("it is running")
        if not self.data.exists():
            self._make()
        with (self.folder / "log").open("ab") as log:
            self._postmaster = subprocess.Popen(
                [binaries() / "postgres", "-D", self.data, "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                # Ctrl-C in the terminal is for the tests, which end it.
                start_new_session=True,
                preexec_fn=end_with_parent,
                **self._as_owner,
            )
        until(self._answers, lambda: f"PostgreSQL was not ready in time:\n{self.log}")

    def stop(self, mode: Stop = Stop.FAST) -> None:
        """End it in an orderly way, and return when it has ended.

        :raises subprocess.TimeoutExpired: it runs on, like one that is paused.
        """
        postmaster = self._running()
        postmaster.send_signal(mode.value)
        postmaster.wait(PATIENCE)
        self._postmaster = None

    def kill(self) -> None:
        """End all its processes at one moment by SIGKILL.

        It is as if the machine died, except that the system closes the connections, and keeps what
        was written without fsync.
        """
        processes = self._suspended()
        for process in processes:
            _send(process, signal.SIGKILL)
        self._running().wait(PATIENCE)
        until(
            lambda: not any(map(_status, processes)), lambda: f"{processes} have survived SIGKILL"
        )
        self._postmaster = None

    def pause(self) -> None:
        """Stop all its processes by SIGSTOP.

        Connections stay, new ones are accepted by the system, and nothing is answered.
        """
        self._suspended()

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        for process in reversed(self.processes()):
            _send(process, signal.SIGCONT)

    def processes(self) -> list[psutil.Process]:
        """Return the postmaster, and then the processes that it has started."""
        postmaster = psutil.Process(self._running().pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def close(self) -> None:
        """End it and its standbys, and remove all files. Idempotent.

        It may be in any state: paused, killed, never started.
        """
        for standby in self._standbys:
            standby.close()
        if self._postmaster is not None:
            if self._postmaster.poll() is None:
                self.kill()
            self._postmaster = None
        if self.folder.exists():
            self._free_shared_memory()
            shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- a standby

    def standby(self) -> Cluster:
        """Return a running standby that each commit here now waits for.

        A commit is confirmed once the standby has it on disk; readers there may see it later, and
        see all after :meth:`promote`. The standby follows again after a
        new start of either server. Another call replaces it: then commits wait for the newer one
        only. It ends with this cluster.
        """
        standby = Cluster()
        self._standbys.append(standby)
        standby.password = self.password
        name = f"standby{standby.port}"
        primary = (
            f"host={HOST} port={self.port} user={SUPERUSER} password={self.password}"
            f" application_name={name}"
        )
        standby._run("pg_basebackup", "-D", standby.data, "-R", "-c", "fast", "-d", primary)
        with (standby.data / "postgresql.auto.conf").open("a") as settings:
            # Once promoted it waits for no standby. The last line wins.
            settings.write("synchronous_standby_names = ''\n")
        standby.start()
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.execute("SELECT pg_reload_conf()")
        # The server's processes take the new setting one by one. It has come into force when a
        # commit waits for a standby that does not answer.
        standby.pause()
        try:
            until(self._commit_waits, lambda: f"no commit waits for the standby:\n{self.log}")
        finally:
            standby.resume()
        until(
            lambda: self.execute(
                "SELECT 1 FROM pg_stat_replication"
                f" WHERE application_name = '{name}' AND sync_state = 'sync'"
            ),
            lambda: f"the standby is not synchronous:\n{self.log}\n{standby.log}",
        )
        return standby

    def promote(self) -> None:
        """Make this standby a primary, and return when it takes writes."""
        promoted = self.execute(f"SELECT pg_promote(true, {PATIENCE:.0f})")
        assert promoted == [(True,)], f"the standby was not promoted:\n{self.log}"

    # --- what is in it

    def execute(self, sql: str, database: str = SUPERUSER) -> list[tuple[Any, ...]]:
        """Execute one statement as the superuser, outside of a transaction.

        :returns: its rows.
        :raises psycopg.Error: it failed, or the server does not listen.
        :raises TimeoutError: no answer in time.
        """

        async def executing() -> list[tuple[Any, ...]]:
            async with (
                asyncio.timeout(PATIENCE),
                await psycopg.AsyncConnection.connect(
                    self._superuser(database), autocommit=True
                ) as session,
            ):
                cursor = await session.execute(sql)
                return await cursor.fetchall() if cursor.description else []

        return asyncio.run(executing())

    def database(self) -> str:
        """Make an empty database, owned by a login role without privileges.

        Other roles cannot connect to it, except the superuser. Its password has characters that a
        URL must quote.

        :returns: its URL, ``postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME``.
        """
        name = f"test{next(_numbers)}"
        password = f"@:/%{secrets.token_urlsafe()}"
        self.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        self.execute(f"CREATE DATABASE {name} OWNER {name}")
        self.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
        return f"postgresql://{name}:{quote(password, safe='')}@{HOST}:{self.port}/{name}"

    def drop(self, url: str) -> None:
        """Drop a database of :meth:`database` with its role.

        Ends its connections.
        """
        parts = urlsplit(url)
        self.execute(f"DROP DATABASE {parts.path[1:]} WITH (FORCE)")
        self.execute(f"DROP ROLE {unquote(parts.username or '')}")

    # --- inside

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        authentication = ["--auth=scram-sha-256", f"--username={SUPERUSER}", f"--pwfile={secret}"]
        # The empty cluster need not survive a loss of power.
        form = ["--data-checksums", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run("initdb", "-D", self.data, *authentication, *form)
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())

    def _run(self, command: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [binaries() / command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.folder,
            check=False,
            **self._as_owner,
        )
        if done.returncode:
            raise ClusterFailed(
                f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
            )

    def _running(self) -> subprocess.Popen[bytes]:
        if self._postmaster is None:
            raise RuntimeError("it is not running")
        return self._postmaster

    def _superuser(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}:{self.password}@{HOST}:{self.port}/{database}"

    def _answers(self) -> bool:
        status = self._running().poll()
        if status is not None:
            self._postmaster = None
            raise ClusterFailed(f"postgres ended with {status} before it was ready:\n{self.log}")
        try:
            self.execute("SELECT")
        except psycopg.OperationalError:
            return False
        return True

    def _commit_waits(self) -> bool:
        """Commit something, and tell whether that waits for a standby."""
        with closing(psycopg.connect(self._superuser(SUPERUSER), autocommit=True)) as session:

            def event() -> object:
                ((event,),) = self.execute(
                    "SELECT wait_event FROM pg_stat_activity"
                    f" WHERE pid = {session.info.backend_pid}"
                )
                return event

            session.pgconn.send_query(b"COMMENT ON DATABASE postgres IS NULL")
            # ClientRead: it has ended, or has not begun. Then the caller tries again.
            until(lambda: event() in ("SyncRep", "ClientRead"), "a commit neither ends nor waits")
            return event() == "SyncRep"

    def _suspended(self) -> list[psutil.Process]:
        """Suspend all its processes."""
        # First the postmaster, which then starts no others.
        postmaster = psutil.Process(self._running().pid)
        _suspend([postmaster])
        processes = self.processes()
        _suspend(processes)
        return processes

    def _free_shared_memory(self) -> None:
        """Free the System V segment that a killed postmaster leaves."""
        # Its lock file names the segment. An orderly end removes both.
        lock = self.data / "postmaster.pid"
        if lock.exists() and len(lines := lock.read_text().splitlines()) > 6:
            _, segment = lines[6].split()
            subprocess.run(["ipcrm", "-m", segment], check=True, timeout=PATIENCE)


def _suspend(processes: list[psutil.Process]) -> None:
    for process in processes:
        _send(process, signal.SIGSTOP)
    until(
        lambda: all(_status(each) in (None, psutil.STATUS_STOPPED) for each in processes),
        lambda: f"{processes} run on after SIGSTOP",
    )


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        # A connection that has just ended.
        return


def _status(process: psutil.Process) -> str | None:
    """Return what a process does, or None when it has ended."""
    try:
        status = str(process.status())
    except psutil.NoSuchProcess:
        return None
    return None if status == psutil.STATUS_ZOMBIE else status
