"""Journals with a known truth: traffic as a gateway's, made from a seed, fast enough for ten
million events.

Owns the traffic's shape. Bursts of messages of one producer go through a queue, a topic with two
subscriptions, or a link; some of them are redelivered, die, expire, wait, are lost with a crash of
the gateway between its two runs, or are in doubt on a link. What became of each is the truth,
counted as it is made.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.journal.schema import VERSION, run_name, segment_name

#: 2026-03-01T06:00:00Z.
START_US: Final = 1_772_344_800_000_000
_BURSTS: Final = (1, 1, 1, 2, 3, 5, 8, 16, 32)
#: The bursts between two lines of one burst: what others do meanwhile.
_AHEAD: Final = 3
_ORDINARY: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass
class Truth:
    """What was written.

    :param outcomes: journeys by outcome.
    :param ids: the messages of each outcome but ``delivered``.
    :param destinations: events by destination.
    :param days: events by day.
    """

    events: int = 0
    lines: int = 0
    messages: int = 0
    journeys: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    ids: dict[str, set[str]] = field(default_factory=dict)
    redelivered: set[str] = field(default_factory=set)
    destinations: Counter[str] = field(default_factory=Counter)
    days: Counter[int] = field(default_factory=Counter)
    segments: list[Path] = field(default_factory=list)
    end_us: int = 0


class JournalWriter:
    """Writes segments, and counts what is in them.

    :param octets: about how long a segment becomes.
    """

    def __init__(self, folder: Path, truth: Truth, octets: int) -> None:
        self._folder: Final = folder
        self._truth: Final = truth
        self._octets: Final = octets
        self._text: list[str] = []
        self._size = 0
        self.time = START_US
        self.run = ""
        self._number = self._line = 0
        folder.mkdir(parents=True, exist_ok=True)

    def start_run(self, store_id: str) -> None:
        self.roll()
        self.run = run_name(store_id, self.time)
        self._head = f'{{"v":{VERSION},"run":"{self.run}","instance":"imqbroker","line":'
        self._number = self._line = 0

    def add(self, count: int, steps: list[str], destination: str, **fields: Any) -> None:
        self._line += 1
        rest = _ORDINARY({"steps": steps, "destination": destination, **fields})
        text = f'{self._head}{self._line},"time":{self.time},{rest[1:]}\n'
        self._text.append(text)
        self._size += len(text)
        truth = self._truth
        truth.lines += 1
        events = count * len(steps)
        truth.events += events
        truth.destinations[destination] += events
        truth.days[self.time // 86_400_000_000] += events
        truth.end_us = self.time
        if self._size >= self._octets:
            self.roll()

    def roll(self) -> None:
        if self._text:
            self._number += 1
            path = self._folder / segment_name(self.run, self._number)
            path.write_text("".join(self._text), encoding="ascii")
            self._truth.segments.append(path)
        self._text, self._size = [], 0


def write_journal(
    folder: Path,
    events: int,
    seed: int = 1,
    *,
    octets: int = 8 << 20,
    queues: int = 12,
    hours: float = 30.0,
    store_id: str = "gen",
) -> Truth:
    """Write a journal of about so many events, and a little more.

    :param octets: of a segment.
    :param hours: how long the traffic takes, by the journal's clock.
    """
    truth = Truth()
    traffic = _Traffic(
        JournalWriter(folder, truth, octets),
        truth,
        random.Random(seed),
        queues,
        hours * 3.6e9 / max(events, 1),
    )
    for part in (events * 2 // 3, events):
        traffic.writer.start_run(store_id)
        while truth.events < part:
            traffic.burst()
        traffic.stop(crashed=part < events)
    traffic.writer.roll()
    return truth


class _Traffic:
    def __init__(
        self,
        writer: JournalWriter,
        truth: Truth,
        chance: random.Random,
        queues: int,
        event_us: float,
    ) -> None:
        self.writer = writer
        self._truth = truth
        self._chance = chance
        self._queues = [f"queue:orders.{number}" for number in range(queues)]
        self._event_us = event_us
        self._waiting: deque[_Burst] = deque()
        self._next_id = 1
        self._transfer = 0

    def burst(self) -> None:
        chance = self._chance
        count = chance.choice(_BURSTS)
        kind = chance.random()
        make = _OnQueue if kind < 0.75 else _OnTopic if kind < 0.85 else _OnLink
        before = self._truth.events
        burst = make(self, count)
        burst.step()
        self._waiting.append(burst)
        if len(self._waiting) > _AHEAD:
            self._turn()
        self.writer.time += 1 + int(
            (self._truth.events - before) * self._event_us * 2 * chance.random()
        )

    def _turn(self) -> None:
        for burst in list(self._waiting):
            if not burst.over:
                burst.step()
        while self._waiting and self._waiting[0].over:
            self._waiting.popleft()

    def stop(self, crashed: bool) -> None:
        """The end of a run: what is under way comes to its end; with a crash some messages are
        lost, at the end some stay in doubt, or wait.
        """
        while self._waiting:
            self._turn()
            self.writer.time += 1000
        odd = _OnQueue(self, 3)
        prefix, first = odd.prefix, odd.first
        self._outcome(
            "lost" if crashed else "waiting",
            3,
            [f"{prefix}{first + number}" for number in range(3)],
        )
        self.writer.add(
            3,
            ["produced", "confirmed"],
            odd.destination,
            prefix=prefix,
            runs=[[first, 3, 1]],
            connection=7,
            user="guest",
        )
        linked = _OnLink(self, 2)
        linked.step()
        self._outcome("in doubt", 2, linked.ids)
        self.writer.add(2, ["sent"], "queue:lake", **linked.common, provider="peer")
        self.writer.time += 5_000_000

    def ids(self, count: int) -> tuple[str, int]:
        first = self._next_id
        self._next_id += count
        self._truth.messages += count
        return "ID:7-127.0.0.1(e2:91)-40123-", first

    def transfers(self, count: int) -> list[int]:
        self._transfer += count
        return list(range(self._transfer - count + 1, self._transfer + 1))

    def queue(self) -> str:
        return self._queues[int(self._chance.random() ** 2 * len(self._queues))]

    def _outcome(self, name: str, count: int, ids: list[str]) -> None:
        self._truth.outcomes[name] += count
        self._truth.journeys += count
        if name != "delivered":
            self._truth.ids.setdefault(name, set()).update(ids)


class _Burst:
    """Messages of one producer that go the same way."""

    over = False

    def __init__(self, traffic: _Traffic, count: int) -> None:
        self.traffic, self.count = traffic, count
        self.writer = traffic.writer
        self.prefix, self.first = traffic.ids(count)
        self.at = 0
        self.destination = traffic.queue()
        self.named: dict[str, Any] = {"prefix": self.prefix, "runs": [[self.first, count, 1]]}
        self.consumed = {"connection": 9, "subscription": "s1", "user": "reader"}

    @property
    def ids(self) -> list[str]:
        return [f"{self.prefix}{self.first + number}" for number in range(self.count)]

    def step(self) -> None:
        raise NotImplementedError

    def end(self, outcome: str, journeys: int = 1) -> None:
        self.over = True
        self.traffic._outcome(
            outcome, self.count * journeys, self.ids if outcome != "delivered" else []
        )


class _OnQueue(_Burst):
    """Through a queue, to one consumer."""

    def step(self) -> None:
        self.at += 1
        add, chance = self.writer.add, self.traffic._chance
        if self.at == 1:
            sizes = [100 + self.first % 900] * self.count
            one = {"size": sizes[0]} if self.count == 1 else {"sizes": sizes}
            add(
                self.count,
                ["produced"],
                self.destination,
                **self.named,
                **one,
                connection=7,
                user="guest",
            )
        elif self.at == 2:
            add(self.count, ["stored", "confirmed"], self.destination, **self.named, connection=7)
            if (luck := chance.random()) < 0.002:
                self.end("waiting")
            elif luck < 0.004:
                add(self.count, ["expired"], self.destination, **self.named, reason="expired")
                self.end("expired")
        elif self.at == 3:
            add(self.count, ["delivered"], self.destination, **self.named, **self.consumed)
            self.luck = chance.random()
        elif self.luck < 0.01 and self.at == 4:
            add(
                self.count,
                ["returned"],
                self.destination,
                **self.named,
                **self.consumed,
                reason="nack",
            )
            add(
                self.count,
                ["redelivered"],
                self.destination,
                **self.named,
                **self.consumed,
                attempts=[2] * self.count,
            )
            self.traffic._truth.redelivered.update(self.ids)
            if self.luck < 0.003:
                comment = f"java.lang.IllegalStateException: order {self.first} is closed"
                add(
                    self.count,
                    ["dead"],
                    self.destination,
                    **self.named,
                    reason="undeliverable",
                    comment=comment,
                )
                self.end("dead")
        else:
            add(
                self.count,
                ["acknowledged", "deleted"],
                self.destination,
                **self.named,
                **self.consumed,
            )
            self.end("delivered")


class _OnTopic(_Burst):
    """Through a topic with two subscriptions; ids as a list."""

    def step(self) -> None:
        self.at += 1
        add = self.writer.add
        if self.at == 1:
            self.destination = "topic:prices"
            self.named = {"ids": self.ids}
            add(
                self.count, ["produced"], self.destination, **self.named, connection=8, user="guest"
            )
            return
        for number in (1, 2):
            steps = ["delivered"] if self.at == 2 else ["acknowledged", "deleted"]
            add(
                self.count,
                steps,
                self.destination,
                **self.named,
                connection=20 + number,
                subscription=f"t{number}",
                user=f"reader{number}",
            )
        if self.at == 3:
            self.end("delivered", 2)


class _OnLink(_Burst):
    """Over a link, from another broker."""

    def step(self) -> None:
        self.at += 1
        add = self.writer.add
        if self.at == 1:
            self.named = {"ids": self.ids}
            self.common = {
                **self.named,
                "link": "bridge/lake",
                "transfers": self.traffic.transfers(self.count),
            }
            hashes = [f"{self.first + number:032x}" for number in range(self.count)]
            add(
                self.count,
                ["received"],
                "queue:harbour",
                **self.common,
                provider="source",
                bodies_hash=hashes,
                headers_hash=hashes,
            )
        elif self.at == 2:
            targets = [f"T:{self.first + number}" for number in range(self.count)]
            add(
                self.count,
                ["sent"],
                "queue:lake",
                **self.common,
                provider="peer",
                target_ids=targets,
            )
            if self.traffic._chance.random() < 0.003:
                add(
                    self.count,
                    ["rolled back"],
                    "queue:harbour",
                    **self.common,
                    provider="source",
                    reason="target refused",
                )
                add(
                    self.count,
                    ["buried"],
                    "queue:harbour",
                    **self.common,
                    provider="source",
                    reason="refused",
                    comment="too large: 99 octets",
                )
                self.end("dead")
        elif self.at == 3:
            add(self.count, ["arrived"], "queue:lake", **self.common, provider="peer")
        else:
            add(self.count, ["settled"], "queue:harbour", **self.common, provider="source")
            self.end("delivered")
