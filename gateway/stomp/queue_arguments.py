"""What SUBSCRIBE says of RabbitMQ's queues.

There a subscription of a topic or of an exchange has a queue, and headers say how it is made.

Owns which of these headers a client may use, and why it may not use others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.stomp.refusals import CommandRefused

_QUEUE_NAME: Final = "x-queue-name"


def check_arguments(headers: Mapping[str, str], queue: bool) -> None:
    """Check that a SUBSCRIBE asks for nothing that it would not get.

    :param queue: it is to a queue, for which RabbitMQ does not read ``x-queue-name``.
    :raises CommandRefused: it does. The sentence has the remedy.
    """
    if not queue and headers.get(_QUEUE_NAME):
        raise _refused(
            _QUEUE_NAME,
            "a topic has no queue of that name. To share its messages, SUBSCRIBE with durable:true, auto-delete:false "
            "and the same id in each client",
        )


def _refused(name: str, why: str) -> CommandRefused:
    return CommandRefused(
        f"'{name}' is not allowed on 'SUBSCRIBE': {why}.\n", summary="Invalid header"
    )
