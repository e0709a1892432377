"""Journals of links with a known truth: what a link may do to messages, and what no link should,
made from a seed.

Owns the traffic and its truth. A trouble takes a batch of its own, among others that are moved as
they should be.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from gateway.journal.schema import VERSION, run_name, segment_name

#: 2026-03-01T06:00:00Z.
START_US: Final = 1_772_344_800_000_000
#: Microseconds that a message may take.
LATE_US: Final = 5_000_000
SOURCE: Final = "queue:harbour"
TARGET: Final = "queue:lake"


@dataclass
class Truth:
    """What was made: the ids of the messages by outcome, and of those with something else to be
    said of them.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    said: dict[str, set[str]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def note(self, ids: Sequence[str], outcome: str, *what: str) -> None:
        for id in ids:
            self.outcomes[id] = outcome
            for one in what:
                self.said.setdefault(one, set()).add(id)

    def counted(self) -> Counter[str]:
        return Counter(self.outcomes.values())


class LinkJournal:
    """Writes the journal of one link, or of several with the same writer."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.truth = Truth()
        self.time = START_US
        self.link = "bridge/lake"
        self._folder = folder
        self._lines: list[str] = []
        self._number = self._transfer = self._line = 0
        self._ids = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.run = ""
        self.start()

    def start(self) -> None:
        self.roll()
        self.run = run_name("made", self.time)
        self._number = self._line = self._transfer = 0

    def roll(self) -> None:
        if self._lines:
            self._number += 1
            (self._folder / segment_name(self.run, self._number)).write_text(
                "".join(self._lines), encoding="ascii"
            )
            self._lines = []

    def cut(self) -> None:
        assert not self._number, "it is in no segment yet"
        self._lines = []

    def lose_line(self) -> None:
        """The next line is lost."""
        self._line += 1

    def fresh(self) -> Batch:
        """Messages that the source has not given out before."""
        count = self.chance.randint(1, 9)
        ids = [f"ID:made-{self.link}-{self._ids + number}" for number in range(count)]
        self._ids += count
        return Batch(self, ids)

    def transfers(self, count: int) -> list[int]:
        self._transfer += count
        return list(range(self._transfer - count + 1, self._transfer + 1))

    def add(self, steps: list[str], **fields: Any) -> None:
        self._line += 1
        self.time += self.chance.randint(1, 2_000)
        line = {
            "v": VERSION,
            "run": self.run,
            "line": self._line,
            "time": self.time,
            "instance": "made",
            "link": self.link,
        }
        self._lines.append(json.dumps({**line, "steps": steps, **fields}) + "\n")
        if self._line % 100 == 0:
            self.roll()


class Batch:
    """Messages that the source gives out together."""

    def __init__(self, journal: LinkJournal, ids: list[str]) -> None:
        self.journal, self.ids = journal, ids
        self.hashes = [blake2b(id.encode(), digest_size=16).hexdigest() for id in ids]
        self.numbers: list[int] = []

    def received(self, attempt: int = 1) -> Batch:
        self.numbers = self.journal.transfers(len(self.ids))
        again: dict[str, Any] = {"attempts": [attempt] * len(self.ids)} if attempt > 1 else {}
        self._add(["received"], bodies_hash=self.hashes, headers_hash=self.hashes, **again)
        for id in self.ids:
            self.journal.truth.times.setdefault(id, self.journal.time)
        return self

    def sent(self, altered: bool = False) -> Batch:
        hashes = [f"{int(one, 16) ^ 1:032x}" for one in self.hashes] if altered else self.hashes
        self._add(["sent"], True, bodies_hash=hashes, headers_hash=self.hashes)
        return self

    def arrived(self, *more: str, **fields: Any) -> Batch:
        ids = [f"T:{id}:{number}" for id, number in zip(self.ids, self.numbers, strict=True)]
        self._add(["arrived", *more], True, target_ids=ids, **fields)
        return self

    def step(self, *steps: str, **fields: Any) -> Batch:
        self._add(list(steps), **fields)
        return self

    def _add(self, steps: list[str], at_target: bool = False, **fields: Any) -> None:
        side = (
            {"destination": TARGET, "provider": "there"}
            if at_target
            else {"destination": SOURCE, "provider": "here"}
        )
        self.journal.add(steps, ids=self.ids, transfers=self.numbers, **side, **fields)


def moved(journal: LinkJournal) -> None:
    """As it should be, by a plain link or a transacted one."""
    batch = journal.fresh().received().sent()
    if journal.chance.random() < 0.5:
        batch.arrived().step("settled")
    else:
        batch.arrived("settled")
    journal.truth.note(batch.ids, "arrived")


def lost(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().step("settled")
    journal.truth.note(batch.ids, "lost")


def doubled(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().arrived()
    batch.received(2).sent().arrived().step("settled")
    journal.truth.note(batch.ids, "arrived", "doubled", "redelivered")


def repeated(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().arrived(reason="duplicate id")
    batch.received(2).sent().arrived(reason="duplicate id").step("settled")
    journal.truth.note(batch.ids, "arrived", "repeated", "redelivered")


def possibly_doubled(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().sent().arrived().step("settled")
    journal.truth.note(batch.ids, "arrived", "possibly_doubled")


def tried_again(journal: LinkJournal) -> None:
    """What is rolled back by the target may be sent again in the same transfer."""
    batch = (
        journal.fresh()
        .received()
        .sent()
        .step("rolled back", reason="target lost")
        .sent()
        .arrived()
        .step("settled")
    )
    journal.truth.note(batch.ids, "arrived")


def rolled_back(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().step("rolled back", reason="refused")
    batch.received(2).sent().arrived("settled")
    journal.truth.note(batch.ids, "arrived", "redelivered")


def reordered(journal: LinkJournal) -> None:
    one, other = journal.fresh().received(), journal.fresh().received()
    other.sent().arrived().step("settled")
    one.sent().arrived().step("settled")
    journal.truth.note(one.ids, "arrived", "reordered")
    journal.truth.note(other.ids, "arrived")


def reordered_by_redelivery(journal: LinkJournal) -> None:
    one = journal.fresh().received().sent().step("rolled back", reason="source lost")
    other = journal.fresh().received().sent().arrived("settled")
    one.received(2).sent().arrived("settled")
    journal.truth.note(one.ids, "arrived", "reordered_by_redelivery", "redelivered")
    journal.truth.note(other.ids, "arrived")


def altered(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent(altered=True).arrived().step("settled")
    journal.truth.note(batch.ids, "arrived", "altered")


def transformed(journal: LinkJournal) -> None:
    change = journal.chance.random() < 0.5
    batch = (
        journal.fresh()
        .received()
        .step("transformed")
        .sent(altered=change)
        .arrived()
        .step("settled")
    )
    journal.truth.note(
        batch.ids, "arrived", "transformed", *(["changed_by_transformer"] if change else [])
    )


def late(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent()
    journal.time += LATE_US + 1
    batch.arrived().step("settled")
    journal.truth.note(batch.ids, "arrived", "late")


def buried(journal: LinkJournal) -> None:
    batch = journal.fresh().received().sent().step("rolled back", reason="refused")
    batch.step("buried", reason="SEND_FAILURE", comment="too large").step("settled")
    journal.truth.note(batch.ids, "buried")


def buried_and_rolled_back(journal: LinkJournal) -> None:
    """A dead message queue is no part of the transaction: it keeps what it has."""
    batch = (
        journal.fresh()
        .received()
        .step("buried", reason="TRANSFORM_FAILURE")
        .step("rolled back", reason="source lost")
    )
    batch.received(2).step("settled")
    journal.truth.note(batch.ids, "buried", "redelivered")


def expired(journal: LinkJournal) -> None:
    batch = (
        journal.fresh()
        .received()
        .step("expired", "buried", reason="MESSAGE_EXPIRED")
        .step("settled")
    )
    journal.truth.note(batch.ids, "expired")


def not_transferred(journal: LinkJournal) -> None:
    batch = journal.fresh().received().step("transformed", "not transferred").step("settled")
    journal.truth.note(batch.ids, "not transferred", "transformed")


def given_back(journal: LinkJournal) -> None:
    batch = journal.fresh().received().step("rolled back", reason="stopped")
    journal.truth.note(batch.ids, "given back")


#: What a link may do, and what it should not.
EVENTS: Final[tuple[Callable[[LinkJournal], None], ...]] = (
    *(
        lost,
        doubled,
        repeated,
        possibly_doubled,
        tried_again,
        rolled_back,
        reordered,
        reordered_by_redelivery,
    ),
    *(
        altered,
        transformed,
        late,
        buried,
        buried_and_rolled_back,
        expired,
        not_transferred,
        given_back,
    ),
)


def write(
    folder: Path,
    seed: int,
    troubles: int = 40,
    kinds: Sequence[Callable[[LinkJournal], None]] = EVENTS,
) -> Truth:
    """A journal of two runs, of which the first ended by a crash.

    :param troubles: batches of these kinds, each among some that are moved as they should be.
    """
    journal = LinkJournal(folder, seed)
    for part in range(2):
        for _ in range(troubles // 2):
            for _ in range(journal.chance.randint(0, 4)):
                moved(journal)
            journal.chance.choice(kinds)(journal)
        moved(journal)
        open_at_end = journal.fresh().received().sent()
        if part == 0:
            crashed = journal.fresh().received().sent().arrived()
            journal.time += 1_000_000
            journal.start()
            open_at_end.received(2).sent().arrived().step("settled")
            journal.truth.note(open_at_end.ids, "arrived", "redelivered", "possibly_doubled")
            journal.truth.note(crashed.ids, "in doubt", "the gateway ended")
            # It is given out again before the others, which had arrived before it.
            journal.truth.said.setdefault("reordered_by_redelivery", set()).update(open_at_end.ids)
        else:
            journal.truth.note(open_at_end.ids, "in doubt", "the journal ends")
    journal.roll()
    return journal.truth
