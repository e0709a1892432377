"""Central properties: the settings that brokers have in common.

``imq.cluster.url`` says where it is: a path, a ``file:`` URL, or an ``http:`` or ``https:`` URL with
``imq.bridge.config.remote=true``, as for the configuration of bridges. A file is read whenever
settings are. From a web server it is fetched at start and by SIGHUP, and the last copy is kept in
the instance: the server may be down when a process starts, and a standby must start.

Part of the composition. What the settings in it mean belongs to
:func:`gateway.instance.settings.read`.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Timer
from time import monotonic
from typing import Final
from urllib.parse import SplitResult, urlsplit

from twisted.logger import Logger

from bridge.config.problems import ConfigurationError
from bridge.config.settings import CONFIG_REMOTE
from gateway.instance.layout import Layout, replace
from gateway.instance.settings import CommonFile, Settings, SettingsError
from gateway.instance.settings_general import CLUSTER_URL

#: Seconds in which a web server must have given the whole file.
FETCH_SECONDS: Final = 10.0
#: Bytes that the file may have.
LARGEST: Final = 4 * 1024 * 1024
_CHUNK: Final = 65_536

_log: Final = Logger(namespace="gateway.central")


class CentralUnreadable(Exception):
    """Central properties cannot be read. ``str`` is one line with the place."""


class CentralProperties:
    """Central properties at their place.

    :param location: a path, or the URL of a web server.
    :param kept: where the last copy of what was fetched is.
    """

    def __init__(self, location: Path | str, kept: Path) -> None:
        self._location: Final = location
        self._kept: Final = kept
        self._fetched: bytes | None = None
        self._copied: bytes | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a web server has them."""
        return isinstance(self._location, str)

    def open(self) -> str:
        """Read them for the first time. Blocks.

        :returns: a warning, where it is the last copy; else "".
        :raises CentralUnreadable: there is no such file; or the web server does not give it, and
            there is no copy.
        """
        if not self.is_remote:
            self.read()
            return ""
        try:
            self.fetch()
        except CentralUnreadable as error:
            try:
                self._fetched = self._copied = self._kept.read_bytes()
            except FileNotFoundError:
                raise error from None
            except OSError as failed:
                raise CentralUnreadable(
                    f"{error}; and the last copy, {self._kept}, cannot be read: {failed.strerror}"
                ) from failed
            return f"{error}; the last copy of them is used, {self._kept}"
        return ""

    def read(self) -> CommonFile:
        """Return the file as it is now, or what was fetched last.

        Blocks for a file.

        :raises CentralUnreadable: there is no such file.
        """
        if isinstance(self._location, str):
            if self._fetched is None:
                raise RuntimeError("it was not opened")
            return CommonFile(self._location, self._fetched)
        from bridge.config.loading import read_file

        try:
            data, _ = read_file(self._location)
        except ConfigurationError as error:
            raise CentralUnreadable(str(error)) from error
        return CommonFile(self._location, data)

    def fetch(self) -> None:
        """Fetch them from the web server. Blocks.

        :raises CentralUnreadable: it does not give them; what was fetched last stays.
        """
        url = str(self._location)
        try:
            data = _fetched(url)
        except (OSError, HTTPException, ValueError) as error:
            raise CentralUnreadable(
                f"{url}: expected a web server that has the file: {str(error) or repr(error)}"
            ) from error
        self._fetched = data

    def keep(self) -> None:
        """Keep a copy of what was fetched last, which can be used. Blocks."""
        data = self._fetched
        if data is None or data == self._copied:
            return
        self._copied = data
        try:
            replace(self._kept, data)
        except OSError as failed:
            _log.warn(
                "{url}: no copy can be kept in {kept}: {why}",
                url=self._location,
                kept=self._kept,
                why=failed.strerror or failed,
            )


def central_properties(settings: Settings, layout: Layout) -> CentralProperties | None:
    """Return the central properties that the settings name, if any.

    :raises SettingsError: the place is malformed, or a web server although
        ``imq.bridge.config.remote`` does not allow that.
    """
    text = settings[CLUSTER_URL]
    if not text:
        return None
    # Its modules take long to import.
    from bridge.config.loading import Misplaced, located, without_credentials

    try:
        place = located(text, layout.etc, remote=settings[CONFIG_REMOTE])
    except Misplaced as refused:
        shown = without_credentials(text)
        raise SettingsError([settings.problem(CLUSTER_URL, str(refused), value=shown)]) from refused
    return CentralProperties(place, layout.etc / "cluster.properties.copy")


def _fetched(url: str) -> bytes:
    """:raises OSError, HTTPException, ValueError: it is not there."""
    parts = urlsplit(url)
    until = monotonic() + FETCH_SECONDS
    connection = HTTPConnection(parts.netloc)
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.netloc)
    late = TimeoutError(f"it has not answered in full within {FETCH_SECONDS:g} seconds")
    try:
        made = socket.create_connection((connection.host, connection.port), FETCH_SECONDS)
    except TimeoutError:
        raise late from None
    ended = Event()

    def end() -> None:
        ended.set()
        with suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)

    # A timeout of the socket is for each part that arrives, of which there may be many.
    timer = Timer(max(0.0, until - monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        data = _asked(connection, made, parts)
        if ended.is_set():
            # What ends with the connection looks as if it were whole.
            raise late
        return data
    except (OSError, HTTPException, ValueError) as error:
        if ended.is_set() or isinstance(error, TimeoutError):
            raise late from error
        raise
    finally:
        timer.cancel()
        connection.close()
        made.close()


def _asked(connection: HTTPConnection, made: socket.socket, parts: SplitResult) -> bytes:
    """Ask for the file over a connection that is made. Closes nothing."""
    connection.sock = made
    if isinstance(connection, HTTPSConnection):
        # What is shut down is the connection, whichever descriptor of it is used.
        copy = made.dup()
        copy.settimeout(made.gettimeout())
        connection.sock = ssl.create_default_context().wrap_socket(
            copy, server_hostname=connection.host
        )
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    connection.request("GET", path, headers={"Connection": "close"})
    response = connection.getresponse()
    if response.status != 200:
        moved = response.getheader("Location")
        leads = f", which leads to {moved}; a redirection is not followed" if moved else ""
        raise ValueError(f"it answers {response.status} {response.reason}{leads}")
    data = bytearray()
    while chunk := response.read1(_CHUNK):
        data += chunk
        if len(data) > LARGEST:
            raise ValueError(f"the file has more than {LARGEST} octets")
    if response.length:
        raise ValueError("the connection ended before the file")
    return bytes(data)
