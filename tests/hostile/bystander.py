"""A client that minds its own business while others misbehave: it sends to itself and receives,
over and over, and must not notice anything.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.crash.client import PATIENCE, Client


class Bystander:
    """Round trips on a thread of its own, each a persistent message with a RECEIPT to its own queue
    and back.

    As a context manager it makes sure at the end that none failed, and that they went on until the
    end.
    """

    def __init__(self, port: int) -> None:
        self._client = Client(port)
        self._queue = "/queue/bystander"
        self._client.ask("SUBSCRIBE", {"destination": self._queue, "id": "b", "ack": "client"})
        self._trips = 0
        self._stop = False
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.trips(3)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.trips(3)
        finally:
            self._stop = True
            self._thread.join(PATIENCE)
            self._client.close()
        assert not self._thread.is_alive()

    @property
    def made(self) -> int:
        """Round trips until now."""
        return self._trips

    def trips(self, count: int) -> None:
        """Wait until so many more round trips have been made.

        :raises AssertionError: they were not.
        """
        with self._changed:
            until = self._trips + count
            self._changed.wait_for(lambda: self._trips >= until or self._failure, PATIENCE)
            assert self._failure is None, (
                f"the bystander noticed: {self._failure!r} after {self._trips} round trips"
            )
            assert self._trips >= until, (
                f"the bystander waits: {self._trips} of {until} round trips"
            )

    def _run(self) -> None:
        try:
            while not self._stop:
                body = b"%d" % self._trips
                early = self._client.store(self._queue, body)
                message = early[0] if early else self._client.message()
                assert message.body == body, message
                self._client.ask("ACK", {"id": message.headers["ack"]})
                with self._changed:
                    self._trips += 1
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001
            with self._changed:
                self._failure = error
                self._changed.notify_all()
