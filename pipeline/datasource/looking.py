"""What the driver of a stream sees of a queue, by browsing.

Owns how much is looked at, on a connection of its own. It consumes nothing, and never fails the
query: a user who may not browse there may still consume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from gateway.stomp.wire import Frame
from pipeline.datasource.client import Client, tells_end
from pipeline.datasource.errors import ConnectionLost
from pipeline.datasource.options import Options
from pipeline.errors import PipelineError

#: Where counting ends, so that it stays cheap however long a queue is: messages, octets of bodies,
#: and seconds without a message.
MOST: Final = 1000
_MOST_OCTETS: Final = 4 << 20
_SILENCE: Final = 0.5

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Waiting:
    """Messages that wait.

    :param all_seen: these are all.
    :param oldest: when the oldest of these was sent, in milliseconds since 1970; None where none
        says.
    """

    messages: int
    all_seen: bool
    oldest: int | None = None


class Look:
    """Whether a queue has messages, and how many, asked again and again.

    :param options: of the stream.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client | None = None
        #: False once the broker is known to be one that cannot browse, or that does not let this
        #: user.
        self.possible = True

    def empty(self, seconds: float, every: float) -> bool:
        """Whether no message was there for that time.

        False as soon as one is, and where the broker cannot say.
        """
        until = time.monotonic() + seconds
        while self._asked(self._is_empty):
            if time.monotonic() + every > until:
                return True
            time.sleep(every)
        return False

    def waiting(self) -> Waiting | None:
        """Count what waits, up to :data:`MOST`; None where the broker cannot say."""
        found = self._asked(self._count, patient=False)
        # The reader travels to its tasks next, and a connection cannot.
        self.close()
        return found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _asked(self, ask: Callable[[Client], _Answer], patient: bool = True) -> _Answer | None:
        for _ in range(2):
            try:
                if self._client is None:
                    self._client = Client(self._options).open(patient)
                if self._client.dialect.browse:
                    return ask(self._client)
                self.possible = False
                break
            except ConnectionLost:
                # Spark may have let it wait for longer than the broker does.
                self.close()
            except PipelineError:
                # Whoever may not browse there may consume still: if not, the task will tell.
                self.possible = False
                break
        # The task will try longer.
        self.close()
        return None

    def _is_empty(self, client: Client) -> bool:
        run = self._first(client, 1)
        if run and tells_end(run[0]):
            client.unsubscribe()
            return True
        # The rest of what would be shown is of no interest.
        self.close()
        return False

    def _count(self, client: Client) -> Waiting:
        count = octets = 0
        oldest: list[int] = []
        run = self._first(client, MOST)
        while run and count < MOST and octets < _MOST_OCTETS:
            over = tells_end(run[-1])
            shown = run[:-1] if over else run
            count += len(shown)
            octets += sum([len(frame.body) for frame in shown])
            oldest = sorted([*oldest, *_times(shown)])[:1]
            if over:
                return Waiting(count, True, *oldest)
            run = client.receive(time.monotonic() + _SILENCE)
        return Waiting(count, False, *oldest)

    def _first(self, client: Client, prefetch: int) -> list[Frame]:
        place = self._options.destination
        assert place is not None
        client.subscribe(place, prefetch, browse=True)
        return client.receive(time.monotonic() + self._options.timeout)


def _times(frames: Sequence[Frame]) -> list[int]:
    said = [frame.head.headers.get("timestamp", "") for frame in frames]
    return [int(text) for text in said if text.isdecimal() and len(text) < 16]
