"""Load the configuration of a bridge from its file or URL.

``imq.bridge.NAME.xmlurl`` is a path, a ``file:`` URL, or where the operator has allowed it an
``http:`` or ``https:`` URL. Nothing here holds up the reactor but :func:`read_path` and
:func:`read_file`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from twisted.internet.defer import Deferred, TimeoutError, ensureDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.web.iweb import IPolicyForHTTPS

from bridge.config.document import LARGEST, of_document, too_large
from bridge.config.model import Bridge
from bridge.config.problems import ConfigurationError, Problem
from bridge.config.reader import read
from bridge.config.remote import TIMEOUT_S, fetch
from bridge.config.settings import CONFIG_REMOTE, PASSWORD, XML, XMLURL
from gateway.instance.settings import HIDDEN, Settings, SettingsError, Severity

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CREDENTIALS: Final = re.compile(r"//[^/?#]*@")
_KINDS: Final = "a path, a file: URL, or an http: or https: URL"
_IN_THE_CLEAR: Final = "it came by http:, which everybody on the way can read"


class Misplaced(Exception):
    """The text names no place; ``str`` is what was expected."""


def locate(settings: Settings, name: str, folder: Path) -> Path | str:
    """Return the absolute path, or the URL, of the configuration of a bridge.

    :param name: the bridge's.
    :param folder: what a relative path is relative to: the instance's ``etc`` directory.
    :raises SettingsError: the setting is missing, malformed, or a URL although
        ``imq.bridge.config.remote`` does not allow that.
    """
    url, xml = settings.named(XMLURL, name), settings.named(XML, name)
    setting = XMLURL if url else XML
    text = url or xml
    if url and xml and url != xml:
        expected = f"the same as {XMLURL.full_name(name)}, or only one of the two"
        raise SettingsError(
            [
                settings.problem(
                    XML, expected, name, severity=Severity.BRIDGE, value=without_credentials(xml)
                )
            ]
        )
    if not text:
        expected = f"where the XML configuration of the bridge is: {_KINDS}"
        raise SettingsError([settings.problem(XMLURL, expected, name, severity=Severity.BRIDGE)])
    try:
        return located(text, folder, remote=settings[CONFIG_REMOTE])
    except Misplaced as refused:
        shown = without_credentials(text)
        raise SettingsError(
            [settings.problem(setting, str(refused), name, severity=Severity.BRIDGE, value=shown)]
        ) from None


def read_file(path: Path) -> tuple[bytes, str]:
    """Read a file.

    Return its contents, and why others may see them: empty where only its owner may.

    Blocks, on a file server without limit; call it on a thread.

    :raises ConfigurationError: it cannot be read, is no regular file, or is too large.
    """
    try:
        # Without O_NONBLOCK a pipe in the file's place would hold the thread for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError([of_document(str(path), "a regular file")])
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) and failed.strerror else str(failed)
        raise ConfigurationError(
            [of_document(str(path), f"a file that can be read: {reason}")]
        ) from failed
    if len(data) > LARGEST:
        raise ConfigurationError([too_large(str(path))])
    mode = stat.S_IMODE(status.st_mode)
    exposed = (
        f"others than its owner may read this file, with mode {mode:04o}" if mode & 0o044 else ""
    )
    return data, exposed


def load(
    settings: Settings,
    name: str,
    folder: Path,
    reactor: Any,
    *,
    trust: IPolicyForHTTPS | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Deferred[tuple[Bridge, list[Problem]]]:
    """Load the configuration of the bridge called ``name``.

    Files are read and documents are parsed on a thread of the reactor's pool.

    :param folder: what a relative path is relative to: the instance's ``etc`` directory.
    :param reactor: Twisted's.
    :param trust: which certificates of web servers are trusted; None is those that the system
        trusts.
    :param timeout_s: seconds in which the file or URL must have been read.
    :return: fires with the configuration and warnings. Fails with
        :class:`~gateway.instance.settings.SettingsError` where the settings do not name a file or
        URL, and else with :class:`ConfigurationError`.
    """
    return ensureDeferred(_loaded(settings, name, folder, reactor, trust, timeout_s))


def read_path(
    path: Path, name: str | None = None, passwords: Mapping[str, str] | None = None
) -> tuple[Bridge, list[Problem]]:
    """Read a configuration from a file, blocking: for commands.

    :param name: the name that the bridge must have; None allows any.
    :param passwords: as from :func:`passwords`.
    :raises ConfigurationError: with everything that is wrong.
    """
    data, exposed = read_file(path)
    return read(data, str(path), name, passwords=passwords, exposed=exposed)


def passwords(settings: Settings) -> dict[str, str]:
    """Return what ``${passfile:NAME}`` stands for, by NAME."""
    return {name: settings.named(PASSWORD, name) for name in settings.names(PASSWORD)}


async def _loaded(
    settings: Settings,
    name: str,
    folder: Path,
    reactor: Any,
    trust: IPolicyForHTTPS | None,
    timeout_s: float,
) -> tuple[Bridge, list[Problem]]:
    location = locate(settings, name, folder)
    return await load_at(location, name, settings, reactor, trust=trust, timeout_s=timeout_s)


async def load_at(
    location: Path | str,
    name: str,
    settings: Settings,
    reactor: Any,
    *,
    trust: IPolicyForHTTPS | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Bridge, list[Problem]]:
    """As :func:`load`, from a place that is known.

    :param location: a path or a URL, as of :func:`located`.
    :param name: the name that the configuration must have.
    :raises ConfigurationError: with everything that is wrong.
    """
    data, exposed = await _contents(location, reactor, trust, timeout_s)
    pool = reactor.getThreadPool()
    return await deferToThreadPool(
        reactor,
        pool,
        read,
        data,
        str(location),
        name,
        passwords=passwords(settings),
        exposed=exposed,
    )


async def _contents(
    location: Path | str, reactor: Any, trust: IPolicyForHTTPS | None, timeout_s: float
) -> tuple[bytes, str]:
    if isinstance(location, str):
        exposed = _IN_THE_CLEAR if location.startswith("http:") else ""
        return await fetch(location, reactor, trust, timeout_s), exposed
    reading = deferToThreadPool(reactor, reactor.getThreadPool(), read_file, location)
    # The thread goes on waiting for a file server that is gone; the reactor does not.
    reading.addTimeout(timeout_s, reactor)
    try:
        return await reading
    except TimeoutError:
        expected = f"a file that can be read within {timeout_s:g} seconds"
        raise ConfigurationError([of_document(str(location), expected)]) from None


def located(text: str, folder: Path, *, remote: bool) -> Path | str:
    """Return the absolute path, or the URL, that a text names.

    :param folder: what a relative path is relative to.
    :param remote: whether ``http:`` and ``https:`` URLs are allowed.
    :raises Misplaced: it names no place, or one that is not allowed.
    """
    found = _SCHEME.match(text)
    if found is None:
        return folder.absolute() / text
    try:
        parts = urlsplit(text)
    except ValueError as malformed:
        raise Misplaced(f"{_KINDS}: {malformed}") from None
    match found[0].lower():
        case "file:":
            return _path(parts, folder)
        case "http:" | "https:" if remote:
            return _remote(parts)
        case "http:" | "https:":
            raise Misplaced(
                f"a path or a file: URL; http: and https: URLs are read only with {CONFIG_REMOTE.name}=true"
            )
    raise Misplaced(_KINDS)


def _path(parts: SplitResult, folder: Path) -> Path:
    if parts.netloc.lower() not in ("", "localhost"):
        raise Misplaced(
            f"a file: URL of this machine, such as file:///PATH, and not of {parts.netloc}"
        )
    if parts.query or parts.fragment:
        raise Misplaced("a file: URL with neither ? nor #, which are written %3F and %23 in it")
    if not parts.path or "\0" in unquote(parts.path):
        raise Misplaced("a file: URL with a path")
    return folder.absolute() / unquote(parts.path)


def _remote(parts: SplitResult) -> str:
    if "@" in parts.netloc:
        raise Misplaced("a URL without user and password")
    try:
        _ = parts.port
    except ValueError:
        raise Misplaced("a URL whose port is a number from 0 to 65535") from None
    if not parts.hostname:
        raise Misplaced("a URL with a host")
    url = parts._replace(scheme=parts.scheme.lower(), fragment="").geturl()
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Misplaced(
            "a URL in ASCII without blanks; other characters are written as %XX, and in host names as xn--"
        )
    return url


def without_credentials(text: str) -> str:
    """Return the text of a URL with its user and password hidden."""
    return _CREDENTIALS.sub(f"//{HIDDEN}@", text)
