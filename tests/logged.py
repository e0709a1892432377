"""What is logged while a test looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent, globalLogPublisher


@contextmanager
def logged() -> Iterator[list[LogEvent]]:
    """The events that are logged meanwhile."""
    events: list[LogEvent] = []
    observer = cast("ILogObserver", events.append)
    globalLogPublisher.addObserver(observer)
    try:
        yield events
    finally:
        globalLogPublisher.removeObserver(observer)


@contextmanager
def logged_lines(wanted: Callable[[LogEvent], object] = bool) -> Iterator[list[str]]:
    """The lines that are logged meanwhile, of those events that are wanted."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        if wanted(event):
            lines.append(formatEvent(event))

    observer = cast("ILogObserver", observe)
    globalLogPublisher.addObserver(observer)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observer)


def recording(namespace: str = "test") -> tuple[Logger, list[LogEvent]]:
    """A logger, and the events that it is told."""
    events: list[LogEvent] = []
    return Logger(namespace=namespace, observer=cast("ILogObserver", events.append)), events
