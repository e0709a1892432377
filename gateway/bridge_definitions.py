"""Bridges that an administrator creates, changes and destroys.

It happens while the gateway runs. Part of the composition. Owns what of a bridge is kept for the next start, and the order of the
steps: a definition is checked as a whole before anything of it is written. The settings are in the
instance's ``gateway.properties``, where its operator sees them; a document that came with the
request is in ``etc/bridges/NAME.xml``. What a bridge does belongs to the bridge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.defer import DeferredLock
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bridge.config.problems import ConfigurationError
from bridge.config.settings import XML, XMLURL
from bridge.link.status import BridgeState
from bridge.manager import Bridge, BridgeServiceManager, error_lines
from gateway.admin.service.definition_resources import BridgeDefinition, DefinitionRefused
from gateway.bridges import BridgeLoader
from gateway.configuration import Configuration, settings_now
from gateway.instance import properties, settings_general
from gateway.instance.layout import folder_locked, make_directory, replace
from gateway.instance.problems import counted
from gateway.instance.setting_types import BRIDGES
from gateway.instance.settings import Settings, SettingsError
from gateway.reactor.deferreds import shield

T = TypeVar("T")

#: Properties that say where a bridge's document is.
_PLACES: Final = tuple(setting.name.rpartition(".")[2] for setting in (XMLURL, XML))
_TYPE: Final = settings_general.BRIDGE_TYPE.name.rpartition(".")[2]
_LIST: Final = settings_general.BRIDGE_ACTIVELIST.name


@dataclass(frozen=True)
class _Files:
    """The files that a definition is kept in, as they were before a change."""

    settings: bytes
    document: bytes | None


class BridgeDefinitions:
    """The definitions of an instance's JMS bridges.

    Operations take turns. They raise DefinitionRefused, and as the bridge's own where it does not
    start, stop or reload.

    :param transactions: how many transactions of a bridge wait for a broker.
    """

    _log = Logger(namespace="bridge.manager")

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        loader: BridgeLoader,
        bridges: BridgeServiceManager,
        transactions: Callable[[str], int],
    ) -> None:
        self._reactor: Final = reactor
        self._configuration: Final = configuration
        self._loader: Final = loader
        self._bridges: Final = bridges
        self._transactions: Final = transactions
        self._turn: Final = DeferredLock()

    async def all(self) -> list[BridgeDefinition]:
        """Return those of the bridges that are loaded, by name."""
        settings = self._now()
        names = sorted(each.name for each in self._bridges.bridges if each.type != "STOMP")
        return [await self._definition(settings, name) for name in names]

    async def create(self, asker: str, wanted: BridgeDefinition) -> str:
        """Make a bridge, and start it unless its ``autostart`` is false.

        :param asker: the administrator, for the log.
        :returns: why it did not start, "" if it did.
        """
        return await self._alone(self._create, asker, wanted)

    async def update(self, asker: str, wanted: BridgeDefinition) -> str:
        """Have a bridge be as wanted.

        One of which only the document changes is reloaded: links that it does not change keep
        running. Else it is stopped, and started if it ran before.

        :returns: as :meth:`create`.
        """
        return await self._alone(self._update, asker, wanted)

    async def destroy(self, asker: str, name: str) -> None:
        """Stop a bridge and forget it.

        Its log files, and the record of its decisions, stay in the instance's ``bridges/NAME``.
        """
        await self._alone(self._destroy, asker, name)

    async def check(self, action: str, wanted: BridgeDefinition) -> None:
        """Fail as this action would, where that is known before anything is done.

        :param action: ``create``, ``update`` or ``destroy``.
        """
        ready = {
            "create": self._ready_to_create,
            "update": self._ready_to_update,
            "destroy": self._ready_to_destroy,
        }[action]
        await self._alone(ready, self._now(), wanted)

    async def _alone(self, operation: Callable[..., Awaitable[T]], *arguments: object) -> T:
        await self._turn.acquire()
        try:
            return await operation(*arguments)
        except SettingsError as error:
            raise DefinitionRefused("\n".join(map(str, error.problems))) from error
        except OSError as error:
            raise DefinitionRefused(f"{error.filename}: {error.strerror or error}") from error
        finally:
            self._turn.release()

    # --- the operations

    async def _create(self, asker: str, wanted: BridgeDefinition) -> str:
        settings, name = self._now(), wanted.name
        given = await self._ready_to_create(settings, wanted)
        listed = (*settings[settings_general.BRIDGE_ACTIVELIST], name)
        await self._write(settings, name, given, wanted.document, listed)
        self._log.info(
            "BridgeManager: bridge {name} is created by administrator {asker}",
            name=name,
            asker=asker,
        )
        return await self._begin(name)

    async def _update(self, asker: str, wanted: BridgeDefinition) -> str:
        settings, name = self._now(), wanted.name
        bridge, before, wanted, given = await self._ready_to_update(settings, wanted)
        listed = settings[settings_general.BRIDGE_ACTIVELIST]
        state = bridge.state
        reloaded = (
            dict(before.properties) == dict(wanted.properties)
            and before.own == bool(wanted.document)
            and state is not BridgeState.STOPPED
        )
        if reloaded:
            files = await self._write(settings, name, given, wanted.document, listed)
            try:
                await self._bridges.reload(name)
            except BaseException:
                await self._restore(name, files)
                raise
        else:
            await bridge.stop()
            await self._write(settings, name, given, wanted.document, listed)
        self._log.info(
            "BridgeManager: bridge {name} is changed by administrator {asker}",
            name=name,
            asker=asker,
        )
        if reloaded:
            return ""
        self._take_away(name)
        return await self._begin(name, state is not BridgeState.STOPPED)

    async def _destroy(self, asker: str, name: str) -> None:
        settings = self._now()
        bridge = await self._ready_to_destroy(settings, BridgeDefinition(name))
        await bridge.stop()
        listed = tuple(
            each for each in settings[settings_general.BRIDGE_ACTIVELIST] if each != name
        )
        await self._write(settings, name, {}, "", listed)
        await self._bridges.forget_orders(name)
        self._take_away(name)
        self._log.info(
            "BridgeManager: bridge {name} is destroyed by administrator {asker}",
            name=name,
            asker=asker,
        )

    def _take_away(self, name: str) -> None:
        self._bridges.remove(name)
        self._loader.unload(name)

    async def _begin(self, name: str, wanted: bool | None = None) -> str:
        """Load a bridge as it is written.

        :param wanted: whether to start it; None: as its settings say.
        """
        settings = self._now()
        bridge = self._loader.load(name, settings)
        automatic = settings.named(settings_general.BRIDGE_AUTOSTART, name)
        self._bridges.add(bridge, automatic=automatic)
        if not (automatic if wanted is None else wanted):
            return ""
        [outcome] = await self._bridges.operate("start", name)
        return "" if outcome.error is None else "\n".join(error_lines(name, outcome.error))

    # --- what must hold

    async def _ready_to_create(
        self, settings: Settings, wanted: BridgeDefinition
    ) -> dict[str, str]:
        """Return the settings of a bridge that can be created."""
        name = wanted.name
        self._check_changeable(settings, name)
        if not settings_general.is_bridge_name(name):
            raise DefinitionRefused(
                f"{name!r} can be no bridge's name: expected letters, digits, '_' and '-', and none of the reserved words"
            )
        if any(bridge.name == name for bridge in self._bridges.bridges):
            raise DefinitionRefused(f"bridge {name} exists already")
        if name in settings[settings_general.BRIDGE_ACTIVELIST]:
            raise DefinitionRefused(f"{_LIST} has {name} already: restart the gateway")
        return await self._checked(settings, wanted)

    async def _ready_to_update(
        self, settings: Settings, wanted: BridgeDefinition
    ) -> tuple[Bridge, BridgeDefinition, BridgeDefinition, dict[str, str]]:
        """Return a bridge, what it is, what it is to be, and the settings of that."""
        name = wanted.name
        self._check_changeable(settings, name)
        bridge = self._bridges.find(name)
        before = await self._definition(settings, name)
        if wanted.document == before.document and not before.own:
            # It stays in its operator's file.
            wanted = replaced(
                wanted, document="", properties={**self._place(settings, name), **wanted.properties}
            )
            before = replaced(
                before, document="", properties={**self._place(settings, name), **before.properties}
            )
        return bridge, before, wanted, await self._checked(settings, wanted)

    async def _ready_to_destroy(self, settings: Settings, wanted: BridgeDefinition) -> Bridge:
        """Return a bridge that can be destroyed."""
        self._check_changeable(settings, wanted.name)
        bridge = self._bridges.find(wanted.name)
        self._check_no_transactions(wanted.name)
        return bridge

    def _now(self) -> Settings:
        return settings_now(self._configuration)

    def _check_changeable(self, settings: Settings, name: str) -> None:
        """:raises DefinitionRefused: what is written would not count."""
        file = str(self._configuration.layout.settings)
        if name == settings_general.STOMP:
            raise DefinitionRefused(
                "the bridge of type STOMP is in the settings: imq.bridge.activelist has it, or has not"
            )
        if self._configuration.is_clustered:
            raise DefinitionRefused(
                "in a cluster of brokers each has the settings of all bridges: put them into those of each broker, and restart it"
            )
        if not settings[settings_general.BRIDGE_ENABLED]:
            raise DefinitionRefused("imq.bridge.enabled is false, so there are no bridges")
        for full_name, _, source in settings.given():
            ours = full_name == _LIST or full_name.startswith(f"{BRIDGES}{name}.")
            if ours and not source.startswith(f"{file}:"):
                raise DefinitionRefused(
                    f"{full_name} is given by {source}, which wins over {file}: change it there"
                )

    def _check_no_transactions(self, name: str) -> None:
        waiting = self._transactions(name)
        if waiting:
            raise DefinitionRefused(
                f"bridge {name} has {counted(waiting, 'transaction')} waiting for a broker; 'imqbridgemgr list transactions -bn {name}' shows them"
            )

    async def _checked(self, settings: Settings, wanted: BridgeDefinition) -> dict[str, str]:
        """Return the settings of a bridge by full name.

        :raises DefinitionRefused, SettingsError, ConfigurationError: it could not start with them.
        """
        name, given = wanted.name, {_TYPE: "JMS", **wanted.properties}
        if given[_TYPE].upper() != "JMS":
            raise DefinitionRefused(
                f"{_TYPE}={given[_TYPE]}: expected JMS, the only type of which bridges can be created"
            )
        places = [each for each in _PLACES if each in given]
        if bool(places) == bool(wanted.document):
            raise DefinitionRefused(
                f"bridge {name} needs either a document or {XMLURL.full_name(name)}, where one is"
            )
        if wanted.document:
            given[_PLACES[0]] = f"bridges/{name}.xml"
        full = {f"{BRIDGES}{name}.{key}": value for key, value in given.items()}
        unknown = [each for each in full if not settings.is_declared(each)]
        if unknown:
            raise DefinitionRefused(f"there is no setting {unknown[0]}")
        judged = settings.with_overrides(
            [f"{each}={value}" for each, value in full.items()], "the request"
        )
        if wanted.document:
            from bridge.config.loading import passwords
            from bridge.config.reader import read

            await self._on_thread(
                lambda: read(
                    wanted.document.encode(),
                    "the document",
                    name,
                    passwords=passwords(judged),
                )
            )
        return full

    async def _definition(self, settings: Settings, name: str) -> BridgeDefinition:
        prefix = f"{BRIDGES}{name}."
        given = {
            full.removeprefix(prefix): value
            for full, value, _ in settings.given()
            if full.startswith(prefix)
        }
        given.pop(_TYPE, None)
        # It takes lxml, which a gateway without JMS bridges need not import.
        from bridge.config.loading import locate, read_file

        try:
            place = locate(settings, name, self._configuration.layout.etc)
            if isinstance(place, str):
                return BridgeDefinition(name, given)
            data, _ = await self._on_thread(lambda: read_file(place))
            text = data.decode("utf-8-sig")
        except (SettingsError, ConfigurationError, UnicodeDecodeError):
            # It cannot be read, or says itself which other encoding it has.
            return BridgeDefinition(name, given)
        for each in _PLACES:
            given.pop(each, None)
        return BridgeDefinition(name, given, text, place == self._document(name))

    def _place(self, settings: Settings, name: str) -> dict[str, str]:
        """Return the properties that say where a bridge's document is."""
        full = {f"{BRIDGES}{name}.{key}": key for key in _PLACES}
        return {full[each]: value for each, value, _ in settings.given() if each in full}

    # --- files

    def _document(self, name: str) -> Path:
        return self._configuration.layout.etc / "bridges" / f"{name}.xml"

    async def _write(
        self,
        settings: Settings,
        name: str,
        given: Mapping[str, str],
        document: str,
        listed: tuple[str, ...],
    ) -> _Files:
        """Write the files of a definition, and remove those that it lacks.

        :returns: what they were before.
        """
        layout, path = self._configuration.layout, self._document(name)
        prefix = f"{BRIDGES}{name}."
        changes: dict[str, str | None] = {
            full: None for full, _, _ in settings.given() if full.startswith(prefix)
        }
        changes |= {**given, _LIST: ",".join(listed)}

        def write() -> _Files:
            before = _Files(
                layout.settings.read_bytes(), path.read_bytes() if path.exists() else None
            )
            if document:
                make_directory(path.parent)
                replace(path, document.encode())
            with folder_locked(layout.etc):
                data = layout.settings.read_bytes()
                replace(layout.settings, properties.rewritten(data, changes))
            if not document:
                path.unlink(missing_ok=True)
            return before

        return await self._on_thread(write)

    async def _restore(self, name: str, files: _Files) -> None:
        def restore() -> None:
            replace(self._configuration.layout.settings, files.settings)
            if files.document is not None:
                replace(self._document(name), files.document)

        await self._on_thread(restore)

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await shield(deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call))
