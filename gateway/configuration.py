"""The settings of an instance, read and judged before anything is started.

Owns which packages declare settings, and the making of a new instance. Knows nothing of what is built from them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway import __version__
from gateway.broker import settings as broker_settings
from gateway.broker.access import DEFAULT_RULES, AccessError
from gateway.broker.settings import BrokerOptions, broker_options
from gateway.broker.users import UsersError, create_default_users
from gateway.instance import passfile, settings_general
from gateway.instance.files import replace
from gateway.instance.layout import Layout, LayoutError
from gateway.instance.passfile import PassfileError
from gateway.instance.settings import Setting, Settings, SettingsError, read
from gateway.refusal import StartRefused
from gateway.stomp import settings as stomp_settings
from gateway.stomp.settings import StompOptions

#: Every setting there is, each declared beside the code that it is for.
DECLARED: Final[tuple[Setting[Any], ...]] = (
    *settings_general.SETTINGS,
    *stomp_settings.SETTINGS,
    *broker_settings.SETTINGS,
)

#: The passfile's names for the password of the user admin.
_ADMIN_PASSWORDS: Final = ("imq.imqcmd.password", "imq.imqbridgemgr.password", settings_general.BRIDGE_ADMIN_PASSWORD.name)


@dataclass(frozen=True)
class Configuration:
    """What a start needs to know.

    :param broker: the broker's options. :param stomp: the STOMP bridge's, None when the bridge is not to run.
    :param stomp_problems: why the STOMP bridge cannot run though it should. :param warnings: for the log.
    :param notes: for whoever started a new instance. :param overrides: settings of the command line.
    """

    layout: Layout
    settings: Settings
    broker: BrokerOptions
    stomp: StompOptions | None
    stomp_problems: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    overrides: tuple[str, ...]


def configure(varhome: Path, instance: str, passfile_path: Path | None, overrides: Sequence[str]) -> Configuration:
    """Read an instance's settings, making the instance if there is none.

    :raises StartRefused: with everything that is wrong.
    """
    try:
        layout = Layout(varhome, instance)
        if not layout.exists:
            # A wrong command line is told before anything is made of it.
            read(DECLARED, None, overrides)
        notes = _create(layout)
        settings, problems = read(DECLARED, layout.settings, overrides)
        settings = _with_passwords(settings, layout, passfile_path)
        broker = broker_options(settings, instance)
        active = (
            settings[settings_general.BRIDGE_ENABLED] and settings_general.STOMP in settings[settings_general.BRIDGE_ACTIVELIST]
        )
        stomp: StompOptions | None = None
        stomp_problems = tuple(str(problem) for problem in settings.bridge_problems(settings_general.STOMP))
        if active and not stomp_problems:
            stomp = StompOptions.read(settings, __version__, settings[settings_general.HOSTNAME])
            if not stomp.tcp_enabled and not stomp.tls_enabled:
                stomp, stomp_problems = (
                    None,
                    ("the STOMP bridge has no protocol enabled: set imq.bridge.stomp.tcp.enabled or imq.bridge.stomp.tls.enabled",),
                )
    except SettingsError as error:
        raise StartRefused([str(problem) for problem in error.problems]) from error
    except (LayoutError, PassfileError, UsersError, AccessError, ValueError) as error:
        raise StartRefused([str(error)]) from error
    except OSError as error:
        raise StartRefused([f"{error.filename}: {error.strerror or error}"]) from error
    return Configuration(
        layout=layout,
        settings=settings,
        broker=broker,
        stomp=stomp,
        stomp_problems=stomp_problems if active else (),
        warnings=tuple(str(problem) for problem in problems),
        notes=notes,
        overrides=tuple(overrides),
    )


def reread(configuration: Configuration) -> Settings:
    """The settings as their file has them now, for those that may be changed while the instance runs; the command line stays over them.

    :raises SettingsError: with everything that would be wrong at the next start, settings of the STOMP bridge included.
    """
    settings, _ = read(DECLARED, configuration.layout.settings, configuration.overrides)
    problems = settings.bridge_problems(settings_general.STOMP)
    if problems:
        raise SettingsError(problems)
    return settings


def _create(layout: Layout) -> tuple[str, ...]:
    """Make the instance if it is new: users and rules first, its settings last, so that one that has settings is whole."""
    if layout.exists:
        return ()
    layout.etc.mkdir(mode=0o700, parents=True, exist_ok=True)
    notes: list[str] = []
    if not layout.users.exists():
        password = _admin_password(layout)
        create_default_users(layout.users, password)
        notes.append(f"new instance {layout.directory}")
        notes.append(f"user 'admin' has the password {password}, kept in {layout.passfile}; it is not shown again")
        notes.append("user 'guest' has the passcode guest, and may connect from this machine only")
    if not layout.access_control.exists():
        replace(layout.access_control, DEFAULT_RULES.encode())
    certified = (layout.tls / "server.pem").exists()
    layout.create(
        [
            (stomp_settings.TLS_ENABLED.name, "true" if certified else "false"),
            (stomp_settings.TLS_REQUIRE_CLIENT_AUTH.name, "true"),
            (settings_general.PASSFILE_ENABLED.name, "true"),
            (settings_general.BRIDGE_ADMIN_USER.name, "admin"),
        ]
    )
    return tuple(notes)


def _admin_password(layout: Layout) -> str:
    """A random password in the passfile, where the bridges and the administration commands find it.

    One that is there already, of a start that was interrupted, is used again.
    """
    kept = passfile.read(layout.passfile) if layout.passfile.exists() else {}
    password = kept.get(_ADMIN_PASSWORDS[0]) or secrets.token_urlsafe(18)
    passfile.update(layout.passfile, dict.fromkeys(_ADMIN_PASSWORDS, password))
    return password


def _with_passwords(settings: Settings, layout: Layout, given: Path | None) -> Settings:
    """The settings with the passwords of the passfile that is in force, if one is."""
    path = given or passfile.location(settings, layout)
    return settings if path is None else passfile.applied(settings, path)
