"""The journal of one instance: opened from the settings, given to the broker, changed by a reload,
closed last.

Owns that; what is told is the broker's and the links' business.
"""

from __future__ import annotations

from typing import Any

from gateway.broker.broker import Broker
from gateway.broker.journey import tell
from gateway.configuration import Configuration
from gateway.instance.layout import make_directory
from gateway.instance.settings import Settings
from gateway.journal import settings as journal_settings
from gateway.journal.journal import Journal
from gateway.journal.schema import Level, run_name
from gateway.journal.settings import JournalOptions
from gateway.messaging.clocks import wall_clock


class Recording:
    """A journal that is open.

    :param broker: which tells it what happens to its messages.
    :raises OSError: its folder cannot be made.
    """

    def __init__(self, reactor: Any, configuration: Configuration, broker: Broker) -> None:
        layout = configuration.layout
        make_directory(layout.journal)
        wall = wall_clock(reactor)
        run = run_name(broker.store_id, int(wall() * 1_000_000))
        #: What links tell it, too.
        self.journal = Journal(
            reactor,
            layout.journal,
            run,
            layout.instance,
            JournalOptions.read(configuration.settings),
            wall=wall,
        )
        self._broker = broker
        tell(broker, self.journal)

    def set_level(self, settings: Settings) -> None:
        """The level that the settings ask for holds from now on; the other settings of the journal
        are for the next start.
        """
        level = Level(settings[journal_settings.LEVEL])
        if level is not self.journal.level:
            self.journal.level = level
            tell(self._broker, self.journal)

    async def close(self) -> None:
        """Have all lines written; the broker is closed."""
        journey = self._broker.dead_letters.journal
        if journey is not None:
            journey.flush()
        await self.journal.close()
