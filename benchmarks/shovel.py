"""RabbitMQ as a mover: a dynamic shovel with default parameters.

It speaks AMQP 0-9-1.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from benchmarks.endpoint import Refused
from benchmarks.movers import Mover, Route, Way
from benchmarks.peers import Peer, RabbitMQ

_SHOVEL = "bench"
# The command is a virtual machine of its own; by then it has ended, and takes no processor time
# from what is measured. In seconds.
_DELAY = 1.0
# How long a command may take, in seconds.
_PATIENCE = 60.0


class RabbitMQWithShovel(Mover, RabbitMQ):
    """RabbitMQ with its shovel and its defaults.

    ``ack-mode`` ``on-confirm`` and a prefetch of 1,000.
    """

    many = 1000
    plugins = ("rabbitmq_stomp", "rabbitmq_shovel")

    def make(self, foreign: str, folder: Path) -> Peer:
        return RabbitMQ(folder)

    def _started(self, foreign: str) -> Peer:
        # Whoever is at the other end of the gateway's link, at the end of the shovel it is another
        # RabbitMQ.
        return super()._started("rabbitmq")

    def begin(self, route: Route, batch: int) -> None:
        value = json.dumps(self.parameters(route, batch)).replace("\\", "\\\\").replace('"', '\\"')
        arguments = f'[<<"/">>, <<"shovel">>, <<"{_SHOVEL}">>, "{value}", none]'
        milliseconds = round(_DELAY * 1000)
        self._control(
            "eval",
            f"timer:apply_after({milliseconds}, rabbit_runtime_parameters, parse_set, {arguments}).",
        )
        time.sleep(_DELAY)

    def end(self, route: Route, batch: int) -> None:
        self._control("clear_parameter", "shovel", _SHOVEL)

    def parameters(self, route: Route, batch: int) -> dict[str, str]:
        """Return the shovel's required parameters."""
        source, target = self.queues(route, batch)
        foreign = self.foreign(route)
        # Without a host it is the broker that runs the shovel, reached without a socket.
        there = (
            f"amqp://{foreign.login}:{foreign.passcode}@127.0.0.1:{foreign.amqp_port}"
            if isinstance(foreign, RabbitMQ)
            else ""
        )
        here = "amqp://"
        ends = {Way.WITHIN: (here, here), Way.OUT: (here, there), Way.IN: (there, here)}[route.way]
        return {
            "src-protocol": "amqp091",
            "src-uri": ends[0],
            "src-queue": source,
            "dest-protocol": "amqp091",
            "dest-uri": ends[1],
            "dest-queue": target,
        }

    def _control(self, *arguments: str) -> None:
        command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--quiet", *arguments]
        try:
            done = subprocess.run(
                command,
                env=self.environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(
                f"{self.name}: rabbitmqctl {arguments[0]} did not end within {_PATIENCE:g} s"
            ) from error
        if done.returncode or "error" in done.stdout:
            raise Refused(f"{self.name}: rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}")
