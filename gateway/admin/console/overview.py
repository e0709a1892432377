"""What is wrong now: the first view of the console.

Owns what counts as wrong, its order, and the page to go to for each. Why messages wait,
:mod:`gateway.admin.why` says, which is asked about the worst destinations only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from bridge.link.status import BridgeState, LinkState
from bridge.manager import BridgeServiceManager
from gateway.admin.console.explained import Explained
from gateway.admin.console.view import View
from gateway.admin.service.bridge_resources import COUNTED, transactions_of
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.broker.operator.paging import Paging, Survey
from gateway.broker.operator.views import BrokerView, DestinationView, Totals
from gateway.instance.problems import counted

#: Destinations that are explained in one look; it costs more than to find them.
_EXPLAINED: Final = 5
#: A part of the memory for waiting messages from which on it is told.
_MUCH: Final = 0.9
#: A lag of a link from which on it is told, in milliseconds.
_LATE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong.

    :param severity: ``bad`` where somebody is not served, ``odd`` where that may be meant so.
    :param subject: what it is about, and
    :param path: the page that has more of it, with
    :param query: its parameters.
    :param advice: what mends it, "" where the page says so.
    :param command: the command that does; "" for none.
    """

    severity: str
    subject: str
    text: str
    path: str = ""
    query: Mapping[str, object] | None = None
    advice: str = ""
    command: str = ""
    since_ms: int = 0


class Overview:
    """Looks at everything that may be wrong.

    :param broker: the broker as a whole, given what its destinations have together.
    :param troubles: why clients cannot be served, sentences.
    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        routes: Routes,
        explained: Explained,
        broker: Callable[[Totals], BrokerView],
        paging: Paging,
        bridges: BridgeServiceManager,
        troubles: Callable[[], Sequence[str]],
        now_ms: Callable[[], int],
    ) -> None:
        self._routes: Final = routes
        self._explained: Final = explained
        self._broker: Final = broker
        self._paging: Final = paging
        self._bridges: Final = bridges
        self._troubles: Final = troubles
        self._now_ms: Final = now_ms

    async def look(self, asked: AdminRequest) -> Mapping[str, object]:
        """Return the broker's figures, and what is wrong, the worst first."""
        survey = await self._paging.survey()
        broker = self._broker(survey.totals)
        found = [
            *self._of_broker(broker),
            *self._of_bridges(),
            *await self._of_destinations(survey, asked),
            *await self._of_listeners(asked),
            *self._of_transactions(),
        ]
        found.sort(key=lambda each: each.severity != "bad")
        return {
            "troubles": found,
            "broker": broker,
            "survey": survey,
            "now_ms": self._now_ms(),
            "dead": self._paging.count("queue", BUILT_IN_DMQ_DESTINATION.name)
            + broker.dead_messages,
        }

    def _of_broker(self, broker: BrokerView) -> Iterator[Trouble]:
        for sentence in self._troubles():
            yield Trouble("bad", "Broker", sentence)
        if broker.refusing:
            yield Trouble("bad", "Store", f"Persistent messages are not stored: {broker.refusing}")
        if broker.unreachable_since_ms:
            yield Trouble(
                "bad",
                "Store",
                "The database cannot be reached, so that nothing is confirmed or delivered.",
                since_ms=broker.unreachable_since_ms,
            )
        if broker.memory_most > 0 and broker.memory_used >= _MUCH * broker.memory_most:
            part = 100 * broker.memory_used // broker.memory_most
            yield Trouble(
                "odd",
                "Memory",
                f"{part} % of the memory for waiting messages is used.",
                "destinations",
                {"order": "octets"},
            )

    def _of_bridges(self) -> Iterator[Trouble]:
        for bridge in self._bridges.bridges:
            where = ("bridges", {"name": bridge.name})
            if bridge.problem:
                yield Trouble("bad", f"Bridge {bridge.name}", bridge.problem, *where)
            elif bridge.state in (BridgeState.STOPPED, BridgeState.PAUSED):
                yield Trouble(
                    "odd", f"Bridge {bridge.name}", f"It is {bridge.state.value}.", *where
                )
                continue
            for link in bridge.links():
                status = link.status()
                subject = f"Link {status.name} of {bridge.name}"
                page = ("link", {"bridge": bridge.name, "link": status.name})
                if status.state in (LinkState.FAILED, LinkState.RETRYING, LinkState.STALLED):
                    yield Trouble(
                        "bad",
                        subject,
                        f"It is {status.state.value}: {status.last_error or 'no reason is known'}",
                        *page,
                        since_ms=status.since_ms,
                    )
                elif status.enabled and status.state in (LinkState.STOPPED, LinkState.PAUSED):
                    yield Trouble(
                        "odd",
                        subject,
                        f"It is {status.state.value}.",
                        *page,
                        since_ms=status.since_ms,
                    )
                elif status.lag_ms >= _LATE_MS:
                    yield Trouble(
                        "odd",
                        subject,
                        f"The oldest message at its source waits for {status.lag_ms // 1000} s.",
                        *page,
                    )

    def _of_transactions(self) -> Iterator[Trouble]:
        for bridge in self._bridges.bridges:
            states = [each.state for each in transactions_of(bridge)]
            for word, wanted in COUNTED.items():
                count = sum(state in wanted for state in states)
                if count:
                    yield Trouble(
                        "bad",
                        f"Bridge {bridge.name}",
                        f"{count} of its transactions {'is' if count == 1 else 'are'} {word}.",
                        "transactions",
                        None,
                        "Look at them:",
                        f"imqbridgemgr list transactions -bn {bridge.name}",
                    )

    async def _of_destinations(self, survey: Survey, asked: AdminRequest) -> Sequence[Trouble]:
        found = [
            _destination("bad", each, f"Its consumers take no more, and {_waiting(each)}.")
            for each in survey.stuck
        ]
        found += [
            _destination("bad", each, f"It is nearly at its limit: {_waiting(each)}.")
            for each in survey.full
        ]
        found += [
            _destination("odd", each, f"Nobody consumes from it, and {_waiting(each)}.")
            for each in survey.idle
        ]
        found += [
            _destination("odd", each, f"It is paused ({each.state}).") for each in survey.paused
        ]
        explained = [await self._with_cause(each, asked) for each in found[:_EXPLAINED]]
        found[:_EXPLAINED] = explained
        for word, text in (
            ("idle", "queues have messages and no consumer"),
            ("stuck", "queues have consumers that take no more"),
            ("full", "destinations are nearly at a limit"),
            ("paused", "destinations are paused"),
        ):
            count, named = survey.counts[word], len(getattr(survey, word))
            if count > named:
                found.append(
                    Trouble(
                        "odd",
                        "Destinations",
                        f"{count} {text}; the {named} with the most messages are named here.",
                        "destinations",
                        {"order": "messages"},
                    )
                )
        return found

    async def _with_cause(self, trouble: Trouble, asked: AdminRequest) -> Trouble:
        """Return a destination's trouble with its likeliest cause."""
        query = trouble.query or {}
        answer = await self._explained.why(
            asked, "destination", type=str(query["type"]), name=str(query["name"])
        )
        if answer is None or not answer.causes:
            return trouble
        cause = answer.causes[0]
        return replace(
            trouble,
            text=cause.sentence,
            advice=cause.advice,
            command=cause.command,
            since_ms=cause.since_ms,
        )

    async def _of_listeners(self, asked: AdminRequest) -> Sequence[Trouble]:
        answer: Mapping[str, Any] = await self._routes.perform("GET", "/v1/services", asked)
        return [
            Trouble(
                "odd",
                f"Listener {each['service']}",
                f"It is {each['state']}.",
                "connections",
                {"service": each["service"]},
            )
            for each in answer["services"]
            if each["state"] != "RUNNING"
        ]


def overview_views(overview: Overview) -> Sequence[View]:
    return [View("", "Now", "overview.html", overview.look)]


def _destination(severity: str, view: DestinationView, text: str) -> Trouble:
    return Trouble(
        severity,
        f"{view.type.capitalize()} {view.name}",
        text,
        "destination",
        {"type": view.type, "name": view.name},
    )


def _waiting(view: DestinationView) -> str:
    return f"{counted(view.messages)} {'waits' if view.messages == 1 else 'wait'}"
