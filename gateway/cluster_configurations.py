"""How the brokers of a cluster have their bridges configured, compared.

Part of the composition. Owns what is compared, and that the others read theirs again before a
difference counts. Which bridges are whose, :mod:`gateway.cluster` knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bridge.config.description import describe, differences
from bridge.config.loading import load
from bridge.config.model import Bridge as BridgeConfiguration
from bridge.config.problems import ConfigurationError
from gateway.configuration import Configuration, settings_now
from gateway.exit_codes import StartRefused
from gateway.instance import settings_general
from gateway.instance.passfile import PassfileError
from gateway.instance.setting_types import BRIDGES
from gateway.instance.settings import Settings, SettingsError

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.cluster import ClusterRows, View

#: Seconds in which other brokers are to have read a configuration again, and between two looks.
_READING_SECONDS: Final = 5.0
_READ_LOOK_SECONDS: Final = 0.2
#: Differences between two configurations that are told.
_MOST_TOLD: Final = 3


class ComparedConfigurations:
    """The bridges' configurations of this broker, beside those of the others.

    :param rows: the cluster's tables.
    :param ask: calls one of them on a thread; raises StoreError.
    :param cluster: the cluster's id.
    """

    _log = Logger(namespace="gateway.cluster")

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        rows: ClusterRows,
        ask: Callable[..., Awaitable[Any]],
        cluster: str,
    ) -> None:
        self._reactor: Final = reactor
        self._configuration: Final = configuration
        self._rows: Final = rows
        self._ask: Final = ask
        self._cluster: Final = cluster
        #: The call to read configurations that was heard last; -1 has them read in any case.
        self.heard = -1

    def check(self, common: Mapping[str, str], view: View) -> None:
        """Compare the settings that brokers that run have in common.

        :param common: this broker's.
        :raises StartRefused: one differs; names both sides.
        """
        wrong = [
            f"{name} is {here or 'not set'} here, and {there or 'not set'} at broker {other.id} of cluster {self._cluster}: "
            "expected the same at all brokers"
            for other in view.brokers.values()
            if other.owned
            for name, here, there in differences(common, other.settings)
        ]
        if wrong:
            raise StartRefused(wrong)

    async def publish(self, view: View) -> None:
        """Tell the cluster how bridges are configured here.

        :param view: the cluster as it was before they are read.
        :raises StoreError: the database cannot be asked.
        """
        try:
            settings = settings_now(self._configuration)
        except (SettingsError, PassfileError) as error:
            self.heard = view.reading
            self._log.error("{error}", error=error)
            return
        names = [
            name
            for name in settings.names(settings_general.BRIDGE_TYPE)
            if name != settings_general.STOMP
        ]
        loading = [Deferred.fromCoroutine(self._readable(settings, name)) for name in names]
        for config in await gatherResults(loading):
            if config is not None:
                values = self._described(settings, config)
                await self._ask(self._rows.describe, config.name, values, view.reading)
        # Not before: the database may have been out of reach.
        self.heard = view.reading

    async def _readable(self, settings: Settings, name: str) -> BridgeConfiguration | None:
        try:
            return await self.loaded(settings, name)
        except (SettingsError, ConfigurationError) as error:
            self._log.warn(
                "bridge {name} cannot be compared with other brokers': {error}",
                name=name,
                error=error,
            )
            return None

    async def loaded(self, settings: Settings, name: str) -> BridgeConfiguration:
        """Return the configuration of a bridge, as its file is now.

        :raises SettingsError, ConfigurationError: it cannot be used.
        """
        config, _ = await load(
            settings,
            name,
            self._configuration.layout.etc,
            self._reactor,
            timeout_s=_READING_SECONDS,
        )
        return config

    def _described(self, settings: Settings, config: BridgeConfiguration) -> dict[str, str]:
        """What there is to say of a bridge, without where its file is."""
        ours = f"{BRIDGES}{config.name}."
        shared = settings.shared().items()
        return describe(config) | {name: value for name, value in shared if name.startswith(ours)}

    async def different(
        self, settings: Settings, config: BridgeConfiguration, only: str = ""
    ) -> list[str]:
        """Return what brokers that run have otherwise.

        They read theirs again before.

        :param only: compare with this one alone, which must have the bridge.
        :returns: for each of them what would have been expected here; empty where nothing differs.
        :raises StoreError: the database cannot be asked.
        """
        name, mine = config.name, self._described(settings, config)
        await self._ask(self._rows.describe, name, mine, max(0, self.heard))
        until, called = self._reactor.seconds() + _READING_SECONDS, 0
        while True:
            others = await self._ask(self._rows.descriptions, name)
            different = [
                other
                for other in others
                if other.values != mine and (not only or other.broker == only)
            ]
            late = self._reactor.seconds() >= until
            missing = only and only not in {other.broker for other in others}
            if (
                not (different or missing)
                or (called and not missing and all(one.reading >= called for one in different))
                or late
            ):
                break
            if not called:
                called = await self._ask(self._rows.call_to_read)
            await deferLater(self._reactor, _READ_LOOK_SECONDS)
        if only and only not in {other.broker for other in others}:
            return [f"a broker that has bridge {name} in its settings, and {only} has not"]
        wrong = []
        for other in different:
            found = differences(mine, other.values)
            words = [
                f"{where} is {here!r} here and {there!r} there" for where, here, there in found
            ]
            more = "" if len(found) <= _MOST_TOLD else f"; and {len(found) - _MOST_TOLD} more"
            wrong.append(
                f"what broker {other.broker} of cluster {self._cluster} has for bridge {name}: {'; '.join(words[:_MOST_TOLD])}{more}"
            )
        return wrong
