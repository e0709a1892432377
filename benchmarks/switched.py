"""A gateway whose traces are switched on and off while it runs.

Two processes that do the same differ by where their memory lies, and by more than what traces may
cost. One process that is measured with traces and without in turn does not. ``python -m
benchmarks.switched`` is ``stomp-gateway`` with that switch, which the product itself has not: off, it
still asks for traces once in a run of messages, and gets none at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import Gateway

_OFF, _ON = signal.SIGUSR1, signal.SIGUSR2


class SwitchedGateway(Gateway):
    """With traces at first."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.switched"]

    def environment(self) -> dict[str, str]:
        found = super().environment()
        own = Path(__file__).resolve().parent.parent
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [found["PYTHONPATH"], str(own)]))
        return found

    def switch(self, on: bool) -> None:
        """Have it trace, or not, from about now on."""
        os.kill(self.tree.pid, _ON if on else _OFF)


def main() -> None:
    """Run ``stomp-gateway`` with the arguments of the command line."""
    from gateway import command, opened_broker
    from gateway.journal.tracer import Context
    from gateway.messaging.message import Message
    from gateway.tracing.exporter import Tracing

    class Switched(Tracing):
        on = True

        def contexts(self, messages: Sequence[Message], roots: bool) -> dict[str, Context]:
            if self.on:
                return super().contexts(messages, roots)
            # Nothing is saved meanwhile, or there would be more traces than the rate afterwards.
            while not self._roots.lacks_s():
                self._roots.take(1)
            return {}

        def read(self, lines: Sequence[Mapping[str, object]]) -> None:
            if self.on:
                super().read(lines)

        async def _export(self, pause: float) -> float:
            # The requests belong to the side that has made the spans.
            return await super()._export(pause) if self.on else pause

    def switch(number: int, frame: Any) -> None:
        Switched.on = number == _ON

    for each in (_OFF, _ON):
        signal.signal(each, switch)
    opened_broker.Tracing = Switched  # type: ignore[attr-defined]
    command.main()


if __name__ == "__main__":
    main()
