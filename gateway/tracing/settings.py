"""The settings of traces, from which the reference page is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.instance.settings import Integer, Setting, Settings, ValueType


def Endpoint() -> ValueType[str]:
    """The URL of an OTLP/HTTP collector, or nothing."""

    def read(text: str) -> str:
        url = text.strip()
        if url:
            parts = urlsplit(url)
            # Reading the port checks it.
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError
            url.encode("ascii")
        return url

    return ValueType("URL", "a URL such as http://127.0.0.1:4318/v1/traces", read, str)


ENDPOINT: Final = Setting(
    "imq.tracing.endpoint",
    Endpoint(),
    "",
    "URL of the OpenTelemetry collector that gets spans by OTLP/HTTP, as http://127.0.0.1:4318/v1/traces; none is no traces. What imq.journal.level tells "
    "becomes spans: those of links by default, all with all.",
)
ONE_IN: Final = Setting(
    "imq.tracing.oneIn",
    Integer(0, 1_000_000_000),
    0,
    "Of messages that have no valid traceparent, one in this number begins a trace; with 0 no message does. Those that have one are traced if it says that they are sampled.",
    unit="messages",
)
MOST_PER_SECOND: Final = Setting(
    "imq.tracing.mostPerSecond",
    Integer(1, 1_000_000),
    20,
    "How many traces imq.tracing.oneIn may begin in a second. One costs about as much as a hundred messages; messages with a traceparent that says that they are sampled are traced in any case.",
    unit="traces",
)
QUEUE: Final = Setting(
    "imq.tracing.queue",
    Integer(1, 10_000_000),
    20_000,
    "How many spans may wait for the collector; more are dropped, and counted.",
    unit="spans",
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (ENDPOINT, ONE_IN, MOST_PER_SECOND, QUEUE)


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """Where spans go, and of which messages.

    :param endpoint: empty for nowhere.
    :param one_in: see :data:`ONE_IN`.
    :param most_per_second: see :data:`MOST_PER_SECOND`.
    :param most: spans that may wait.
    """

    endpoint: str
    one_in: int = 0
    most_per_second: int = MOST_PER_SECOND.default
    most: int = 20_000

    @classmethod
    def read(cls, settings: Settings) -> TracingOptions:
        """The options that the settings ask for."""
        return cls(settings[ENDPOINT], settings[ONE_IN], settings[MOST_PER_SECOND], settings[QUEUE])
