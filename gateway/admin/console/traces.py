"""Live traces of one client or destination, in the console."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from gateway.admin.console import subjects
from gateway.admin.console.actions import Action, Field, Given
from gateway.admin.console.subjects import Subject
from gateway.admin.console.view import View
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.admin.service.trace_resources import MOST_SECONDS
from gateway.instance.problems import counted

_SECONDS: Final = Field(
    "seconds", "Seconds", "number", "60", help=f"At most {MOST_SECONDS}.", required=True
)


def _posted(path: str, given: Given) -> list[str]:
    body = {name: value for name, value in given.items() if value and name != "address"}
    return [
        *("curl", "-u", "USER", "-H", "Content-Type: application/json"),
        *("-d", json.dumps(body), f"{given['address']}{path}"),
    ]


def _start(name: str, parameter: str, question: str, subject: Subject) -> Action:
    return Action(
        name,
        "Trace",
        question,
        "POST",
        "/v1/traces",
        partial(_posted, "/v1/traces"),
        (parameter,),
        (_SECONDS,),
        lambda answer: f"Trace {answer['id']} of {answer['subject']} is under way.",
        back=lambda given: "traces",
        subject=subject,
    )


_MEANWHILE: Final = (
    "It shows ids, sizes, users and destinations, and never a header or a body. Until it ends, each "
    "step of all clients is told, which costs them a little."
)

_ACTIONS: Final = (
    _start(
        "trace-client",
        "connection",
        f"Follow connection {{connection}}? {_MEANWHILE}",
        subjects.connection,
    ),
    _start(
        "trace-destination",
        "destination",
        f"Follow {{destination}}? {_MEANWHILE}",
        subjects.traced,
    ),
    Action(
        "stop-trace",
        "Stop",
        "Stop trace {id}? What it has seen stays.",
        "POST",
        "/v1/traces/stop",
        partial(_posted, "/v1/traces/stop"),
        ("id",),
        done=lambda answer: f"It is stopped, and has seen {counted(answer['seen'], 'line')}.",
        subject=subjects.trace,
    ),
)
TRACE_ACTIONS: Final[Mapping[str, Action]] = {action.name: action for action in _ACTIONS}


def trace_views(routes: Routes, now_ms: Callable[[], int]) -> Sequence[View]:
    """Return the view of traces."""
    return [View("traces", "Traces", "traces.html", partial(_traces, routes, now_ms), 1.0)]


async def _traces(
    routes: Routes, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    """Show all traces, and the lines of the wanted one, by default the latest."""
    request = AdminRequest(asked.user, role=asked.role)
    traces = (await routes.perform("GET", "/v1/traces", request))["traces"]
    id = asked.text("id") or (str(traces[0]["id"]) if traces else "")
    trace: Mapping[str, Any] | None = None
    if id:
        wanted = AdminRequest(asked.user, {"id": id}, role=asked.role)
        trace = await routes.perform("GET", "/v1/traces/lines", wanted)
    return {"traces": traces, "trace": trace, "now_ms": now_ms()}
