"""The settings of an instance, read and judged before anything is started.

Owns which packages declare settings, and the making of a new instance. Knows nothing of what is
built from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.config import settings as bridge_settings
from bridge.providers.jms.java_command import SETTINGS as JAVA_SETTINGS
from gateway import __version__
from gateway.admin.service import settings as admin_settings
from gateway.broker.properties import jdbc, repositories
from gateway.broker.properties import settings as broker_settings
from gateway.broker.properties.jdbc import JdbcOptions, jdbc_options
from gateway.broker.properties.settings import BrokerOptions, broker_options
from gateway.broker.security.access import AccessError, make_first_rules
from gateway.broker.security.users import UsersError, make_first_users
from gateway.central import CentralProperties, CentralUnreadable, central_properties
from gateway.exit_codes import StartRefused
from gateway.front import settings as front_settings
from gateway.instance import passfile, settings_general
from gateway.instance.layout import Layout, LayoutError, make_directory
from gateway.instance.memory import host_memory
from gateway.instance.passfile import PassfileError
from gateway.instance.settings import Problem, Setting, Settings, SettingsError, read
from gateway.journal import journal
from gateway.stomp import settings as stomp_settings
from gateway.stomp.listeners import NO_LISTENER
from gateway.stomp.settings import StompOptions
from gateway.tracing import settings as tracing_settings

#: Every setting there is, each declared beside the code that it is for.
DECLARED: Final[tuple[Setting[Any], ...]] = (
    *settings_general.SETTINGS,
    *stomp_settings.SETTINGS,
    *front_settings.SETTINGS,
    *broker_settings.SETTINGS,
    *repositories.SETTINGS,
    *jdbc.SETTINGS,
    *bridge_settings.SETTINGS,
    *admin_settings.SETTINGS,
    *JAVA_SETTINGS,
    *journal.SETTINGS,
    *tracing_settings.SETTINGS,
)


@dataclass(frozen=True)
class Configuration:
    """What a start needs to know.

    :param broker: the broker's options.
    :param jdbc: the database of its store, None for another kind of store.
    :param stomp: the STOMP bridge's, None when the bridge is not to run.
    :param stomp_problems: why the STOMP bridge cannot run though it should.
    :param warnings: for the log and for the starter.
    :param passing_warnings: likewise, of what may have changed since and ``doctor`` looks for itself.
    :param notes: for the log and for the starter of a new instance.
    :param made_admin: the user ``admin`` is new, with a password in the instance's passfile.
    :param overrides: settings of the command line.
    :param passfile: the one that the command line gave; None where the settings say which one there
        is.
    :param central: the settings that brokers of a cluster have in common; None without.
    """

    layout: Layout
    settings: Settings
    broker: BrokerOptions
    jdbc: JdbcOptions | None
    stomp: StompOptions | None
    stomp_problems: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    made_admin: bool
    overrides: tuple[str, ...]
    passfile: Path | None = None
    central: CentralProperties | None = None
    passing_warnings: tuple[str, ...] = ()

    @property
    def is_clustered(self) -> bool:
        """Whether there may be other brokers that share its JMS bridges."""
        return self.jdbc is not None and bool(self.jdbc.cluster)


def configure(
    varhome: Path, instance: str, passfile_path: Path | None, overrides: Sequence[str]
) -> Configuration:
    """Read an instance's settings, making the instance if it does not exist.

    :raises StartRefused: with everything that is wrong.
    """
    try:
        layout = Layout(varhome, instance)
        had_users = layout.users.exists()
        # What is wrong is told before anything is made of it.
        if not layout.exists:
            read(DECLARED, None, overrides)
        elif not had_users:
            read_settings(layout, overrides)
        notes, lost = _create(layout)
        made_admin = not had_users and layout.users.exists()
        settings, problems, central, kept = read_settings(layout, overrides)
        settings, more = _with_passwords(settings, layout, passfile_path)
        exposed = _exposed(layout)
        oversized = settings_general.memory_warnings(settings, host_memory.memory())
        broker = broker_options(settings, instance)
        database = jdbc_options(settings, instance)
        # That the admin service would speak in the clear on a network is told before anything
        # starts.
        admin_settings.AdminOptions.read(settings)
        stomp, stomp_problems = stomp_options(settings)
    except SettingsError as error:
        raise StartRefused([str(problem) for problem in error.problems]) from error
    except (
        LayoutError,
        PassfileError,
        UsersError,
        AccessError,
        CentralUnreadable,
        ValueError,
    ) as error:
        raise StartRefused([str(error)]) from error
    except OSError as error:
        raise StartRefused([f"{error.filename}: {error.strerror or error}"]) from error
    return Configuration(
        layout=layout,
        settings=settings,
        broker=broker,
        jdbc=database,
        stomp=stomp,
        stomp_problems=stomp_problems,
        warnings=(
            *lost,
            *kept,
            *(str(problem) for problem in [*problems, *more, *oversized]),
            *exposed,
        ),
        notes=notes,
        made_admin=made_admin,
        overrides=tuple(overrides),
        passfile=passfile_path,
        central=central,
    )


def read_settings(
    layout: Layout, overrides: Sequence[str]
) -> tuple[Settings, list[Problem], CentralProperties | None, list[str]]:
    """Read the settings of an instance, with central properties below its own.

    :returns: the settings, their warnings, the central properties, and a warning if they are a copy.
    :raises SettingsError: with everything that is wrong.
    :raises CentralUnreadable: the central properties cannot be read.
    """
    file = layout.settings if layout.exists else None
    settings, problems = read(DECLARED, file, overrides)
    central = central_properties(settings, layout)
    if central is None:
        return settings, problems, None, []
    kept = central.open()
    settings, problems = read(DECLARED, file, overrides, central.read())
    central.keep()
    return settings, problems, central, [kept] if kept else []


def _read_again(configuration: Configuration) -> Settings:
    """:raises SettingsError:"""
    central = configuration.central
    try:
        common = None if central is None else central.read()
    except CentralUnreadable as error:
        raise SettingsError(
            [configuration.settings.problem(settings_general.CLUSTER_URL, str(error))]
        ) from error
    settings, _ = read(DECLARED, configuration.layout.settings, configuration.overrides, common)
    if central is not None:
        central.keep()
    return settings


def stomp_options(settings: Settings) -> tuple[StompOptions | None, tuple[str, ...]]:
    """Return the STOMP bridge's options, if it is to run, or why it cannot.

    :raises SettingsError: they contradict each other.
    """
    active = settings[settings_general.BRIDGE_ACTIVELIST]
    if not settings[settings_general.BRIDGE_ENABLED] or settings_general.STOMP not in active:
        return None, ()
    problems = settings.bridge_problems(settings_general.STOMP)
    if problems:
        return None, tuple(map(str, problems))
    try:
        stomp = StompOptions.read(settings, __version__, settings[settings_general.HOSTNAME])
    except SettingsError as error:
        return None, tuple(map(str, error.problems))
    if stomp.listeners:
        return stomp, ()
    return None, (f"the STOMP bridge has {NO_LISTENER}",)


def reread(configuration: Configuration) -> Settings:
    """Read the settings that may be changed while the instance runs.

    The command line stays over the file.

    :raises SettingsError: with everything that would be wrong at the next start, settings of the
        STOMP bridge included.
    """
    settings = _read_again(configuration)
    problems = settings.bridge_problems(settings_general.STOMP)
    if problems:
        raise SettingsError(problems)
    return settings


def settings_now(configuration: Configuration) -> Settings:
    """Read the settings and the passfile anew.

    A bridge that is started or reloaded uses them. The command line stays over both.

    :raises SettingsError: with everything that would be wrong at the next start, except of
        other bridges.
    :raises PassfileError: the passfile cannot be used.
    """
    settings = _read_again(configuration)
    path = configuration.passfile or passfile.location(settings, configuration.layout)
    return settings if path is None else passfile.applied(settings, path)


def _first_users_and_rules(layout: Layout) -> tuple[str, ...]:
    """Make those of a new instance that are missing.

    :returns: which users were made, a line each.
    """
    made = () if layout.users.exists() else make_first_users(layout, shown=False)
    make_first_rules(layout)
    return made


def _create(layout: Layout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the instance if it is new.

    Users and rules come first and its settings last, so that a start that was interrupted is gone
    on with. Settings may also be there before the first start, alone.

    :returns: what was made, and a warning if it is not the instance that is new, but only its
        settings.
    """
    if layout.exists:
        if layout.lock_file.exists():
            # It has run before. What is gone from it is told where it is missed.
            return (), ()
        made = _first_users_and_rules(layout)
        layout.create()
        return made, ()
    notes: list[str] = []
    lost: list[str] = []
    if layout.lock_file.exists():
        # It has run before.
        lost.append(
            f"{layout.settings}: the file was gone from an instance that is not new, and is made again as a new instance has it"
        )
    else:
        notes.append(f"new instance {layout.directory}")
    make_directory(layout.etc)
    layout.close_to_others()
    if layout.users.exists() and not lost:
        notes.append(f"its users are those that {layout.users} had already")
    notes += _first_users_and_rules(layout)
    certified = (layout.tls / "server.pem").exists()
    layout.create(
        [
            (stomp_settings.TLS_ENABLED.name, "true" if certified else "false"),
            (stomp_settings.TLS_REQUIRE_CLIENT_AUTH.name, "true"),
            # A users file that came from elsewhere may have come without one.
            (
                settings_general.PASSFILE_ENABLED.name,
                "true" if layout.passfile.exists() else "false",
            ),
            (settings_general.BRIDGE_ADMIN_USER.name, "admin"),
        ]
    )
    return tuple(notes), tuple(lost)


def _exposed(layout: Layout) -> list[str]:
    """A warning, where others than the owner may look into the instance."""
    mode = layout.open_to_others()
    if mode is None:
        return []
    return [
        f"{layout.directory}: others than its owner may use what is below it, with mode {mode:04o}; expected 0700, which chmod 700 makes it"
    ]


def _with_passwords(
    settings: Settings, layout: Layout, given: Path | None
) -> tuple[Settings, list[Problem]]:
    """Return the settings with the passfile's passwords, and its warnings."""
    path = given or passfile.location(settings, layout)
    return (
        (settings, [])
        if path is None
        else (passfile.applied(settings, path), passfile.unknown(settings, path))
    )
