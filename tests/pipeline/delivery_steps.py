"""A journal of all delivery steps, and of links with trouble.

Owns a truth that can be counted by hand: which step took how long is the same for each message of a
queue, and longer for every fiftieth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.pipeline.generated import JournalWriter, Truth

#: Milliseconds from one step to the next: of most messages, and of every fiftieth.
TOOK: Final = {
    "stored": (2, 40),
    "confirmed": (3, 50),
    "routed": (4, 80),
    "delivered": (1, 10),
    "acknowledged": (20, 900),
    "deleted": (2, 4),
    "acknowledgement confirmed": (5, 60),
}
QUEUES: Final = ("queue:orders", "queue:invoices")
#: Of each link: where from, where to, messages, and how many of them are lost, dead, late.
LINKS: Final = {
    "erp/orders": ("queue:orders.out", "queue:erp.orders", 300, 6, 0, 0),
    "erp/stock": ("queue:stock", "queue:erp.stock", 200, 0, 4, 0),
    "lake/orders": ("queue:orders.out", "queue:lake", 250, 0, 0, 9),
    "lake/audit": ("queue:audit", "queue:lake", 120, 0, 0, 0),
}
_LATE_MS: Final = 90_000
_EVERY_MS: Final = 6_000


@dataclass(frozen=True)
class Flowing:
    """What was written.

    :param journal: the folder.
    :param messages: on each of :data:`QUEUES`.
    """

    journal: Path
    messages: int


def write_steps(folder: Path, messages: int = 400, names: tuple[str, ...] = QUEUES) -> Flowing:
    """Write the journal.

    :param messages: on each queue, hundreds of them.
    :param names: of the queues.
    """
    writer = JournalWriter(folder, Truth(), 8 << 20)
    writer.start_run("steps")
    start = writer.time
    lines: list[tuple[int, list[str], str, dict[str, Any]]] = []
    for place, queue in enumerate(names):
        for number in range(messages):
            lines += _on_queue(queue, f"ID:{place}-{number}", start, number)
    for link, (source, target, count, *wrong) in LINKS.items():
        for number in range(count):
            lines += _on_link(link, source, target, start, number, *wrong)
    for time, steps, destination, fields in sorted(lines, key=lambda line: line[0]):
        writer.time = time
        writer.add(1, steps, destination, **fields)
    writer.roll()
    return Flowing(folder, messages)


def _on_queue(
    queue: str, name: str, start: int, number: int
) -> list[tuple[int, list[str], str, dict[str, Any]]]:
    slow = 1 if number % 50 == 49 else 0
    time = start + number * _EVERY_MS * 1000
    by = {"ids": [name], "connection": 7, "user": "shop"}
    to = {"ids": [name], "connection": 9, "user": "till", "subscription": "s1"}
    lines = [(time, ["produced"], queue, {**by, "size": 300})]
    times = {"produced": time}
    since = {
        "stored": "produced",
        "confirmed": "produced",
        "routed": "produced",
        "delivered": "routed",
        "acknowledged": "delivered",
        "deleted": "acknowledged",
        "acknowledgement confirmed": "acknowledged",
    }
    for step, before in since.items():
        times[step] = times[before] + TOOK[step][slow] * 1000
        lines.append((times[step], [step], queue, by if step in ("stored", "confirmed") else to))
    return lines


def _on_link(
    link: str, source: str, target: str, start: int, number: int, lost: int, dead: int, late: int
) -> list[tuple[int, list[str], str, dict[str, Any]]]:
    time = start + number * _EVERY_MS * 1500
    name = f"ID:{link}-{number}"
    common = {"ids": [name], "link": link, "transfers": [number + 1]}
    hashes = {"bodies_hash": [f"{number:032x}"], "headers_hash": [f"{number:032x}"]}
    lines = [(time, ["received"], source, {**common, **hashes})]
    if number < dead:
        reason = {"reason": "refused", "comment": "too large"}
        return [*lines, (time + 7000, ["buried"], source, {**common, **reason})]
    if number >= lost:
        took = _LATE_MS if number < lost + late else 12
        arrived = time + took * 1000
        lines += [
            (time + 2000, ["sent"], target, {**common, **hashes}),
            (arrived, ["arrived"], target, {**common, "target_ids": [f"T:{link}-{number}"]}),
        ]
        time = arrived
    return [*lines, (time + 3000, ["settled"], source, common)]
