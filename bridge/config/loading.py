"""Loading the configuration of a bridge: from the settings that name it to the values it holds,
without ever holding up the reactor.

Owns the order of the steps and the thread they happen on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError, ensureDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.web.iweb import IPolicyForHTTPS

from bridge.config.location import Location, locate, read_file
from bridge.config.model import Bridge
from bridge.config.problems import ConfigurationError, Problem
from bridge.config.reader import read
from bridge.config.remote import TIMEOUT_S, fetch
from bridge.settings import PASSWORD
from gateway.instance.settings import Settings

_IN_THE_CLEAR: Final = "it came by http:, which everybody on the way can read"


def load(
    settings: Settings,
    name: str,
    folder: Path,
    reactor: Any,
    *,
    trust: IPolicyForHTTPS | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Deferred[tuple[Bridge, list[Problem]]]:
    """The bridge called ``name`` as its XML file configures it now, and warnings.

    Files are read, and documents are taken apart, on a thread of the reactor's pool.

    :param folder: what a relative path is relative to: the instance's ``etc`` directory.
    :param reactor: Twisted's. :param trust: which certificates of web servers are believed; None is
        those that the system trusts.
    :param timeout_s: seconds in which the file or URL must have been read.
    :return: fires with both; or fails with :class:`~gateway.instance.settings.SettingsError` where
        the settings do not say well where the file is, and else with :class:`ConfigurationError`.
    """
    return ensureDeferred(_loaded(settings, name, folder, reactor, trust, timeout_s))


def read_path(
    path: Path, name: str | None = None, passwords: Mapping[str, str] | None = None
) -> tuple[Bridge, list[Problem]]:
    """The same of a file, at once and on the thread that calls: for commands.

    :param name: the name that the bridge must have; None where any will do. :param passwords: as
        :func:`passwords` gives them.
    :raises ConfigurationError: with everything that is wrong.
    """
    data, exposed = read_file(path)
    return read(data, str(path), name, passwords=passwords, exposed=exposed)


def passwords(settings: Settings) -> dict[str, str]:
    """What ``${passfile:NAME}`` stands for, by NAME."""
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
    location: Location, reactor: Any, trust: IPolicyForHTTPS | None, timeout_s: float
) -> tuple[bytes, str]:
    if location.path is None:
        url = str(location)
        return await fetch(url, reactor, trust, timeout_s), _IN_THE_CLEAR if url.startswith(
            "http:"
        ) else ""
    reading = deferToThreadPool(reactor, reactor.getThreadPool(), read_file, location.path)
    # The thread itself waits on for a file server that is gone; the reactor does not.
    reading.addTimeout(timeout_s, reactor)
    try:
        return await reading
    except TimeoutError:
        expected = f"a file that can be read within {timeout_s:g} seconds"
        raise ConfigurationError([Problem(str(location), 0, "", "", None, expected)]) from None
