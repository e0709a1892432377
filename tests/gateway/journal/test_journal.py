"""The journal on the reactor's thread, where nothing waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from twisted.internet import reactor as global_reactor
from twisted.internet.task import deferLater

from gateway.journal.journal import Journal, JournalOptions, JournalStanding
from gateway.journal.schema import OPEN, Level, run_name
from tests.gateway.journal.reading import lines_of

P = ParamSpec("P")

if TYPE_CHECKING:

    def ensureDeferred(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]: ...
else:
    from pytest_twisted import ensureDeferred

reactor = cast(Any, global_reactor)
RUN = run_name("store", 1_700_000_000_000_000)


def opened(folder: Path) -> Journal:
    return Journal(reactor, folder, RUN, "test", JournalOptions(level=Level.ALL, headers=True))


@ensureDeferred
async def test_what_was_taken_is_with_the_kernel_when_it_says_so(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert (journal.level, journal.headers, journal.bodies) == (Level.ALL, True, False)
    before = int(reactor.seconds() * 1_000_000)
    journal.add({"steps": ("sent",), "ids": ["a"]})
    journal.add({"steps": ("arrived",), "ids": ["a"], "time": 7})
    await journal.written()
    (path,) = tmp_path.glob("*.open")
    assert path.name.endswith(OPEN)
    assert journal.standing() == JournalStanding("all", 2, path.stat().st_size, 0, False)
    await journal.close()
    first, second = lines_of(tmp_path)
    assert before <= first["time"] <= int(reactor.seconds() * 1_000_000)
    assert second["time"] == 7


@ensureDeferred
async def test_lines_that_were_hurried_are_written_though_nobody_waits(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    journal = opened(folder)
    for lost in (0, 1):
        journal.add({"steps": ("sent",), "ids": ["a"]})
        line = journal.hurry()
        while not journal.has(line):
            await deferLater(reactor, 0)
        assert (journal.standing().lines, journal.standing().lost) == (1, lost)
        for path in folder.iterdir():
            path.unlink()
    await journal.close()


@ensureDeferred
async def test_nobody_waits_for_a_journal_that_has_stopped_or_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    journal = opened(folder)
    await journal.written()
    shutil.rmtree(folder)
    journal.add({"steps": ("sent",), "ids": ["a"]})
    await journal.written()
    assert journal.standing() == JournalStanding("all", 0, 0, 1, True)
    await journal.close()
    await journal.close()
    await journal.written()


@ensureDeferred
async def test_who_follows_gets_all_steps_and_the_files_have_what_the_level_says(
    tmp_path: Path,
) -> None:
    journal = Journal(reactor, tmp_path, RUN, "test", JournalOptions(level=Level.LINKS))
    levels: list[Level] = []

    def changed() -> None:
        levels.append(journal.level)
        # What was gathered before the level changed comes then.
        journal.add({"steps": ("acknowledged",), "ids": [f"gathered {len(levels)}"]})

    journal.level_changed = changed
    seen: list[Any] = []
    end = journal.follow(lambda fields: seen.append(fields["ids"]))
    other = journal.follow(lambda fields: None)
    journal.add({"steps": ("produced",), "ids": ["a"]})
    journal.add({"steps": ("sent",), "ids": ["b"], "link": "shop/orders"})
    journal.add({"steps": ("deleted", "dead"), "ids": ["c"]})
    # The settings are read again meanwhile.
    journal.set_level(Level.DEAD)
    journal.add({"steps": ("sent",), "ids": ["d"], "link": "shop/orders"})
    assert (journal.level, journal.standing().level) == (Level.ALL, "dead")
    for each in (end, end, other):
        each()
    journal.add({"steps": ("dead",), "ids": ["e"]})
    assert levels == [Level.ALL, Level.DEAD]
    assert seen == [["gathered 1"], ["a"], ["b"], ["c"], ["d"]]
    await journal.close()
    kept = [line["ids"] for line in lines_of(tmp_path)]
    assert kept == [["gathered 1"], ["b"], ["c"], ["e"]]
