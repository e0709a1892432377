"""Links that transfer once, beside bare transactions and weaker links.

How messages are moved and counted is :mod:`benchmarks.links`'; what the limit is,
:mod:`benchmarks.bare`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import bare, links
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.measurement import Measurement
from benchmarks.movers import Mover, Route
from bridge.config.model import QualityOfService


def beside_bare(
    mover: Mover, route: Route, counts: Mapping[int, int], body: int, name: str
) -> list[Measurement]:
    """Move messages to or from ActiveMQ, and do the bare work beside it.

    Clients do by themselves what the move takes at ActiveMQ.

    :param counts: messages of a transaction, and messages to be moved in such, a multiple of 100.
    :param name: not used before, for the queues of those clients.
    :returns: messages a second, one measurement for each size. ``ceiling`` is what the plain loop
        does.
    :raises Refused: a link, or a client, does not move, or not all.
    """
    _warm(mover, route, counts, body)
    foreign = mover.foreign(route)
    assert isinstance(foreign, OpenWireActiveMQ)
    measured = []
    for batch, messages in counts.items():
        loop, turns = (
            bare.rate(
                foreign,
                program,
                route.way,
                messages,
                batch,
                body,
                f"{name}-{program.name.lower()}-{batch}",
            )
            for program in (bare.Program.LOOP, bare.Program.TURNS)
        )
        moved = links.move(mover, route, batch, messages, body).with_ceiling(loop)
        measured.append(
            _with(
                moved,
                {
                    "bare XA loop msg/s": loop,
                    "the link's Java alone, two calls a batch, msg/s": turns,
                },
            )
        )
    return measured


def beside_each_other(
    mover: Mover, routes: Sequence[Route], counts: Mapping[int, int], body: int
) -> list[Measurement]:
    """Move messages with each quality of service.

    :param routes: which differ in nothing else.
    :param counts: as of :func:`beside_bare`.
    :returns: messages a second; for each size, one measurement for each route, in turn.
    :raises Refused: as there.
    """
    for route in routes:
        _warm(mover, route, counts, body)
    measured: list[Measurement] = []
    for batch, messages in counts.items():
        moved = {route.quality: links.move(mover, route, batch, messages, body) for route in routes}
        usual = moved[QualityOfService.DUPLICATES_OK].value
        for quality, one in moved.items():
            if quality is not QualityOfService.DUPLICATES_OK and usual and one.value is not None:
                one = _with(one, {"% of DUPLICATES_OK": one.value / usual * 100})
            measured.append(one)
    return measured


def _warm(mover: Mover, route: Route, counts: Mapping[int, int], body: int) -> None:
    """Move all messages once untimed, where nothing was measured yet.

    A JVM compiles what it runs often; the clients of :mod:`benchmarks.bare` do the same.
    """
    mover.prepare(route)
    if route not in mover.warmed:
        for batch, messages in counts.items():
            links.move(mover, route, batch, messages, body)
        mover.warmed.add(route)


def _with(measurement: Measurement, extra: dict[str, float]) -> Measurement:
    assert measurement.value is not None, "a run without one is refused"
    return measurement.with_value(measurement.value, extra)
