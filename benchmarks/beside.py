"""What STOMP clients lose to a pump beside them.

The same load with and without messages being moved in the same server, in turn.

The pump takes persistent messages of 1 KiB from a queue to the end of that same queue, as fast as
it can, and so never runs dry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from time import perf_counter

from benchmarks import load, requests
from benchmarks.backlog import fill
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.movers import BATCHES, ROUND, Mover
from benchmarks.tally import Outcome
from benchmarks.wire import Confirm

#: What is measured: two loads by their rate, and request and reply by the time that 99 of 100 take
#: at most.
LOADS = (
    Load(varying=True),
    Load(body=1024, persistent=True, confirm=Confirm.EACH_100, ack="client", varying=True),
)
CLIENTS = 10

# Messages that go round; more than a link takes ahead.
_ROUND = 5_000
_FILLING = 30.0
_BATCH = max(BATCHES)
# How often with and without, in turn.
_TURNS = 2


def run(mover: Mover, name: str, warm_up: float, seconds: float) -> list[Measurement]:
    """Measure :data:`LOADS`, then request and reply with :data:`CLIENTS`.

    :returns: of each load the rate with a pump beside it, of request and reply p99, both in percent
        of what it is without.
    :raises Refused: when the server refuses, or moves nothing.
    """
    if ROUND not in mover.warmed:
        source, _ = mover.queues(ROUND, _BATCH)
        if fill(mover, source, 1024, True, _ROUND, _FILLING).messages < _ROUND:
            raise Refused(f"{mover.name} took fewer than {_ROUND} messages in {_FILLING:g} s")
        mover.warmed.add(ROUND)

    def loaded(declared: Load) -> Callable[[str], Measurement]:
        return lambda queue: load.run(mover, declared, queue, warm_up, seconds)

    measures = [
        *map(loaded, LOADS),
        lambda queue: requests.run(mover, CLIENTS, 100, queue, warm_up, seconds),
    ]
    return [
        _compared(mover, measure, f"{name}.{number}") for number, measure in enumerate(measures)
    ]


def _compared(mover: Mover, measure: Callable[[str], Measurement], name: str) -> Measurement:
    without, beside = list[Measurement](), list[Measurement]()
    moved: list[float] = []
    for turn in range(_TURNS):
        without.append(measure(f"{name}.without{turn}"))
        mover.begin(ROUND, _BATCH)
        try:
            began, before = perf_counter(), mover.moved(ROUND, _BATCH)
            beside.append(measure(f"{name}.beside{turn}"))
            after = mover.moved(ROUND, _BATCH)
            if before is not None and after is not None:
                if after == before:
                    raise Refused(f"{mover.name}: the pump moved nothing beside the load")
                moved.append((after - before) / (perf_counter() - began))
        finally:
            mover.end(ROUND, _BATCH)
    values = {
        kind: mean([run.value for run in runs if run.value is not None])
        for kind, runs in (("without", without), ("beside", beside))
    }
    last = beside[-1]
    return replace(
        last,
        value=100 * values["beside"] / values["without"],
        outcome=sum((run.outcome for run in [*without, *beside]), Outcome()),
        messages=sum(run.messages for run in [*without, *beside]),
        extra={**values, **({"moved msg/s": mean(moved)} if moved else {})},
    )
