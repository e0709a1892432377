"""Waits until something that nobody announces has become so."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.crash.client import PATIENCE
from tests.gateway_process import GatewayProcess

Held = TypeVar("Held")

_never = threading.Event()


def until(condition: Callable[[], Held | None], what: Callable[[], str] | str) -> Held:
    """Ask again until ``condition`` holds.

    :param what: for the failure.
    :returns: what the condition returned when it held, as it may no longer hold.
    :raises AssertionError: it did not in time.
    """
    end = time.monotonic() + PATIENCE
    while not (held := condition()):
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        _never.wait(0.02)
    return held


def log_of(gateway: GatewayProcess) -> str:
    """The text of the instance's log and of its bridge's."""
    directory = gateway.directory
    files = [*(directory / "log").iterdir(), *(directory / "bridges" / "stomp").glob("*.log")]
    return "".join(path.read_text(errors="replace") for path in files)


def reload(gateway: GatewayProcess, text: str, times: int = 1) -> None:
    """Have the gateway read its files again, until its logs have ``text`` that often."""
    gateway.signal(signal.SIGHUP)
    until_logged(gateway, text, times)


def until_logged(gateway: GatewayProcess, text: str, times: int = 1) -> None:
    """Wait until the gateway's log files have ``text`` so many times."""
    until(
        lambda: log_of(gateway).count(text) >= times,
        lambda: f"{text!r} is not in the log:\n{log_of(gateway)}",
    )
