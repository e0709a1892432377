"""The brokers of a test with a journal of the links between them, to be read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bridge.link.journal import BridgeLines
from gateway.journal.journal import Journal, JournalOptions
from gateway.journal.schema import Level, run_name
from tests.bridge.link_pair import Rig, clock
from tests.gateway.journal.reading import Event, Line, events_of, lines_of


class Journaled:
    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        folder.mkdir()
        self.journal = self.opened()

    def opened(self, level: Level = Level.LINKS, **options: bool) -> Journal:
        self._closed = False
        run = run_name("test", int(clock.seconds() * 1_000_000))
        self.journal = Journal(
            clock, self.folder, run, "test", JournalOptions(level, segment_age=3600, **options)
        )
        self.rig.lines = BridgeLines(self.journal)
        return self.journal

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.journal.close()

    async def lines(self) -> list[Line]:
        """All that was told, with which the journal ends."""
        await self.close()
        return lines_of(self.folder)

    async def transfers(self) -> dict[int, list[Event]]:
        """The events of each transfer, in order."""
        found: dict[int, list[Event]] = {}
        for event in events_of(await self.lines()):
            found.setdefault(event.line["transfers"][event.place], []).append(event)
        return found


def steps(events: Sequence[Event]) -> list[str]:
    return [event.step for event in events]
