"""Messages moved from queue to queue by the servers: a pump's rate.

The messages are all in the source's queue before the pump starts. A consumer at the target's queue
counts them, as everywhere in this benchmark. How servers are told to move is
:mod:`benchmarks.movers`'; which routes there are is :mod:`benchmarks.link_cells`'.
"""

from __future__ import annotations

import gc
import time
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from benchmarks import raw
from benchmarks.backlog import fill
from benchmarks.endpoint import Consumer, Poll, Refused
from benchmarks.measurement import Measurement
from benchmarks.meter import Cost, Meter
from benchmarks.movers import BATCHES, Mover, Route
from benchmarks.tally import Reader, Tally
from bridge.config.model import UNSAID_BATCH_SIZE

# Where messages are moved one by one, a part of them tells as much and takes as long.
_FEWER = 4
# Moved before a server's first measurement on a route, at most: a JVM compiles what it runs often.
_WARM_UP = 2_000
# Seconds that the filling may take.
_FILLING = 60.0
# How long nothing may arrive before what is missing is called lost, in seconds.
_SILENCE = 20.0
# After the last, for what comes twice, in seconds.
_AFTER = 0.2
# Between two looks at the socket, in seconds; see load.py.
_PAUSE = 0.001


def run(mover: Mover, route: Route, messages: int, body: int, name: str) -> list[Measurement]:
    """Move messages, all persistent.

    :param messages: where many are under way at a time, a multiple of 400; a fourth where one is.
    :param name: not used before, for the queue with which the provider is measured by itself.
    :returns: messages a second, one measurement for each of :data:`~benchmarks.movers.BATCHES`. A
        server that knows no batches is measured once, and that is given for each. ``ceiling`` is
        what the provider does by itself, where there is one.
    :raises Refused: it does not move, or not all.
    """
    mover.prepare(route)
    batches = (mover.many,) if mover.many else BATCHES
    if route not in mover.warmed:
        for batch in batches:
            move(mover, route, batch, min(_WARM_UP, messages // _FEWER), body)
        mover.warmed.add(route)
    if mover.many:
        return [
            move(mover, route, mover.many, messages if mover.many > 1 else messages // _FEWER, body)
        ] * len(BATCHES)
    measured = []
    for batch in BATCHES:
        count = messages // _FEWER if batch == 1 else messages
        moved = move(mover, route, batch, count, body)
        if route.foreign == "activemq":
            ceiling = raw.rate(
                mover.foreign(route),
                route.protocol,
                route.way,
                count,
                batch or UNSAID_BATCH_SIZE,
                body,
                f"{name}-raw-{batch}",
            )
            moved = moved.with_ceiling(ceiling)
        measured.append(moved)
    return measured


def move(mover: Mover, route: Route, batch: int, messages: int, body: int) -> Measurement:
    """Fill the source, have its messages moved, count them at the target.

    :param messages: a multiple of 100.
    :returns: messages a second from when a tenth of them had arrived to the last.
    """
    source, target = mover.ends(route)
    names = mover.queues(route, batch)
    filled = fill(source, names[0], body, True, messages, _FILLING)
    if filled.messages < messages:
        raise Refused(
            f"{source.name} took {filled.messages} of {messages} messages in {_FILLING:g} s"
        )
    tally = Tally(1)
    gc.collect()
    gc.disable()
    try:
        with Poll() as poll, ThreadPoolExecutor(1) as pool:
            consumer = Consumer(poll, target, f"/queue/{names[1]}", "client", tally, Reader(1))
            counted, cost = _counted(
                mover, route, poll, tally, messages, pool.submit(mover.begin, route, batch)
            )
            ending = pool.submit(mover.end, route, batch)
            until = perf_counter() + _AFTER
            while not ending.done() or perf_counter() < until:
                poll.turn(0.05)
            ending.result()
            consumer.disconnect()
    finally:
        gc.enable()
    outcome = tally.outcome([messages])
    if outcome.lost:
        # What is still somewhere would come to the next measurement.
        raise Refused(
            f"{mover.name}, {route.name}, {batch} at once: {outcome.lost} of {messages} messages did not arrive"
        )
    if not counted:
        raise Refused(
            f"{mover.name}, {route.name}: {messages} messages came at once, which tells no rate"
        )
    return Measurement(
        value=counted / cost.seconds,
        outcome=outcome,
        messages=messages,
        server_cpu=cost.server / counted * 100_000,
        server_peak=cost.peak,
        generator=cost.generator,
        others=cost.others,
        extra={"the other broker's cpu µs/msg": cost.further / counted * 1_000_000}
        if mover.further(route)
        else {},
    )


def _counted(
    mover: Mover, route: Route, poll: Poll, tally: Tally, messages: int, beginning: Future[None]
) -> tuple[int, Cost]:
    """Messages that arrived after the first tenth, and what it cost."""
    meter: Meter | None = None
    began = 0
    last, before = perf_counter(), 0
    while tally.distinct < messages:
        poll.turn(0.05)
        if tally.distinct != before:
            before, last = tally.distinct, perf_counter()
        elif beginning.done():
            beginning.result()
            if perf_counter() > last + _SILENCE:
                break
        else:
            last = perf_counter()
        if meter is None and tally.distinct >= messages // 10:
            meter, began = Meter(mover.tree, mover.further(route)), tally.distinct
        time.sleep(_PAUSE)
    if meter is None:
        raise Refused(
            f"{mover.name}, {route.name}: {tally.distinct} of {messages} messages arrived within {_SILENCE:g} s"
        )
    return tally.distinct - began, meter.stop()
