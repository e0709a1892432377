"""The users of an instance, from the repositories that its settings name.

Part of the composition: it joins settings and repositories, whose libraries not everybody needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway.broker.properties import repositories as declared
from gateway.broker.properties import settings as broker_settings
from gateway.broker.security.logins import Logins
from gateway.broker.security.passcodes import Passcodes
from gateway.broker.security.repositories import Repositories, Repository
from gateway.broker.security.users import Users
from gateway.exit_codes import StartRefused
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings, SettingsError
from gateway.reactor.clocks import wall_clock
from gateway.stomp.settings import CONNECT_TIMEOUT

_log: Final = Logger(namespace="gateway.repositories")


def made_repositories(reactor: Any, layout: Layout, settings: Settings) -> Repositories:
    """Make the repositories that the settings name; the file is not loaded.

    :raises StartRefused: a setting is wrong, or a package is missing.
    """
    logins = Logins(reactor, layout.logins, settings[broker_settings.LOGIN_DELAY])
    passcodes = Passcodes(reactor, waiting=settings[broker_settings.LOGINS_WAITING])
    file = Users(layout.users, reactor, passcodes, logins)
    try:
        made: dict[str, Repository] = {}
        for name in declared.read_repositories(settings):
            if name == declared.FILE:
                made[name] = file
            elif name == declared.OIDC:
                made[name] = _tokens(reactor, layout.etc, settings)
            else:
                made[name] = _directory(reactor, layout.etc, settings)
    except SettingsError as error:
        raise StartRefused([str(problem) for problem in error.problems]) from error
    except ImportError as error:
        raise StartRefused(
            [
                f"{declared.REPOSITORIES.name}: {error.name} is missing; install this package with its extra ldap"
            ]
        ) from error
    return Repositories(made, file, logins)


def _tokens(reactor: Any, etc: Path, settings: Settings) -> Repository:
    # PyJWT takes a while to import.
    from gateway.broker.security.keys import Keys
    from gateway.broker.security.tokens import TokenUsers

    options, keys = declared.read_tokens(settings, etc)

    def fetch(url: str) -> Deferred[bytes]:
        # Twisted's web client takes long to import.
        from bridge.config.remote import fetch

        return fetch(url, reactor)

    known = Keys(keys.place, keys.discover, fetch, keys.lifetime_s, reactor.seconds)
    return TokenUsers(options, known, wall_clock(reactor))


def _directory(reactor: Any, etc: Path, settings: Settings) -> Repository:
    # ldap3 is an extra.
    from gateway.broker.security.directory import DirectoryUsers

    options = declared.read_directory(settings, etc)
    if not options.tls and not all(map(_is_here, options.servers)):
        _log.warn(
            "{servers}: passcodes go to the directory unencrypted; {name}=true encrypts them",
            servers=" ".join(options.servers),
            name=declared.ENCRYPTED.name,
        )
    # The client is to hear why before its time is over.
    within_s = 0.9 * settings[CONNECT_TIMEOUT]
    return DirectoryUsers(reactor, options, settings[broker_settings.LOGINS_WAITING], within_s)


def _is_here(place: str) -> bool:
    host = place.rpartition(":")[0]
    return host in ("localhost", "[::1]") or host.startswith("127.")
