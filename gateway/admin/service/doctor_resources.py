"""What is wrong with the instance and its machine, as a resource.

``GET /v1/doctor`` answers with ``findings``, the worst first, each with the fields of
:class:`~gateway.admin.doctor.finding.Finding`. It is for administrators. Checks of files and disks are
made on a thread.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from twisted.internet.threads import deferToThreadPool

from gateway.admin.doctor import instance, machine
from gateway.admin.doctor.finding import Finding, Severity, octets
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.admin.service.settings import AdminOptions, is_loopback
from gateway.broker.operator.views import DestinationView
from gateway.instance import passfile
from gateway.instance.layout import Layout
from gateway.instance.memory.budget import MemoryBudget
from gateway.instance.problems import counted
from gateway.instance.settings import Settings
from gateway.journal.journal import JournalStanding
from gateway.reactor.clocks import wall_clock
from gateway.stomp.open_listeners import ListenerView
from gateway.stomp.settings import MAX_CONNECTIONS

_ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.OK: 2}
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Served:
    """What only the owner of the broker knows.

    :param listeners: of the STOMP bridge, as they are now.
    :param journal: how the journal stands.
    :param dead: the dead message queues.
    :param troubles: why clients cannot be served, sentences.
    """

    listeners: Callable[[], Sequence[ListenerView]]
    journal: Callable[[], JournalStanding]
    dead: Callable[[], Awaitable[Sequence[DestinationView]]]
    troubles: Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Configured:
    """What a process was started with.

    :param warnings: of reading the settings.
    :param passfile: the one of the command line; None for that of the settings.
    :param in_file: whether messages are in a file of this machine.
    :param refused: reads settings and passfile anew, and tells what is wrong, a sentence each.
    """

    layout: Layout
    settings: Settings
    warnings: Sequence[str]
    passfile: Path | None
    in_file: bool
    refused: Callable[[], Sequence[str]]


class DoctorResources:
    """The checks of a process, as a resource.

    :param reactor: the clock, and its threads.
    :param memory: None where none is used.
    :param served: None in a process that stands by.
    """

    def __init__(
        self,
        reactor: Any,
        configured: Configured,
        memory: MemoryBudget | None,
        served: Served | None,
    ) -> None:
        self._reactor: Final = reactor
        self._configured: Final = configured
        self._memory: Final = memory
        self._served: Final = served

    def __call__(self, routes: Routes) -> None:
        """Add it."""
        routes.add("GET", "/v1/doctor", self._findings)

    async def _findings(self, request: AdminRequest) -> dict[str, object]:
        settings, served = self._configured.settings, self._served
        step_s = wall_clock(self._reactor)() - self._reactor.seconds()
        found = [machine.descriptors(settings[MAX_CONNECTIONS]), machine.clock(step_s)]
        if self._memory is not None:
            found.append(machine.memory(self._memory.usage()))
        exposed: list[str] = []
        if served is not None:
            views = served.listeners()
            exposed += [each.service for each in views if not _is_here(each)]
            found += chain(
                _troubles(served.troubles()),
                _ports(views),
                _journal(served.journal()),
                *map(_dead, await served.dead()),
            )
        found += await deferToThreadPool(
            self._reactor,
            self._reactor.getThreadPool(),
            partial(self._files, exposed, self._configured.refused()),
        )
        return {"findings": sorted(found, key=lambda each: _ORDER[each.severity])}

    def _files(self, exposed: list[str], refused: Sequence[str]) -> list[Finding]:
        """Make the checks that block; on a thread."""
        configured = self._configured
        layout, settings = configured.layout, configured.settings
        options = AdminOptions.read(settings)
        if not is_loopback(options.hostname):
            exposed = [*exposed, "the admin service"]
        folders = {"store": layout.store} if configured.in_file else {}
        used = configured.passfile or passfile.location(settings, layout)
        found: list[Iterable[Finding]] = [
            machine.disks({**folders, "journal": layout.journal, "log": layout.log}),
            instance.permissions(layout, used),
            instance.passwords(layout, (options.user, options.password), exposed),
            instance.certificates(layout),
            instance.rules(layout),
            instance.settings(configured.warnings, layout.settings, refused),
        ]
        if configured.in_file:
            found.append([machine.sync_time(layout.store)])
        return [*chain.from_iterable(found)]


def _is_here(listener: ListenerView) -> bool:
    return bool(listener.address) and is_loopback(listener.address)


def _troubles(troubles: Sequence[str]) -> Iterator[Finding]:
    for text in troubles:
        yield Finding("service", Severity.ERROR, text, "", "imqcmd events -since 1h")
    if not troubles:
        yield Finding("service", Severity.OK, "clients are served")


def _ports(listeners: Sequence[ListenerView]) -> Iterator[Finding]:
    bad = 0
    for each in listeners:
        if each.problem:
            bad += 1
            yield Finding(
                "ports",
                Severity.ERROR,
                f"service {each.service} is not open: {each.problem}",
                f"port {each.port}",
                f"ss -ltnp 'sport = :{each.port}'; imqcmd resume svc -n {shlex.quote(each.service)}",
            )
        elif each.state != "RUNNING":
            bad += 1
            yield Finding(
                "ports",
                Severity.WARNING,
                f"service {each.service} is {each.state}, so that no client can connect there",
                f"port {each.port}",
                f"imqcmd resume svc -n {shlex.quote(each.service)}",
            )
    if not bad:
        yield Finding(
            "ports", Severity.OK, "all services are open", counted(len(listeners), "service")
        )


def _journal(standing: JournalStanding) -> Iterator[Finding]:
    figure = f"level {standing.level}, {octets(standing.octets)} since the start"
    if standing.stopped:
        yield Finding(
            "journal",
            Severity.ERROR,
            "the journal cannot be written, and loses what happens",
            f"{figure}, {counted(standing.lost, 'line')} lost",
            "make room on its disk: imq.journal.retention.size bounds what it takes",
        )
    elif standing.lost:
        yield Finding(
            "journal",
            Severity.WARNING,
            "lines of the journal were lost since the start",
            counted(standing.lost, "line"),
            "look for slow disks; imq.journal.level=links tells less",
        )
    else:
        yield Finding("journal", Severity.OK, "the journal loses nothing", figure)


def _dead(queue: DestinationView) -> Iterator[Finding]:
    figure = f"{counted(queue.messages, 'message')}, {octets(queue.octets)}"
    if queue.messages:
        age = queue.oldest_age_ms
        old = "of unknown age" if age < 0 else f"{age / _HOUR_MS:.1f} h old"
        figure += f", the oldest {old}"
    if queue.messages and not queue.consumers:
        which = f"msg -t q -n {shlex.quote(queue.name)}"
        yield Finding(
            "dead messages",
            Severity.WARNING,
            f"{queue.name} has messages and no consumer",
            figure,
            f"imqcmd list {which}; when it is mended, imqcmd replay {which} -limit {queue.messages}",
        )
    else:
        text = f"{queue.name} is {'consumed' if queue.messages else 'empty'}"
        yield Finding("dead messages", Severity.OK, text, figure)
