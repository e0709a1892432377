"""stompest in STOMP 1.0 without ``id``, which drivers of :mod:`tests.interop.scenarios` always
give: it knows a delivery by its destination.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.gateway_process import HOST, GatewayProcess

with warnings.catch_warnings():
    # Its docstrings hold escapes that Python warns of when it compiles them.
    warnings.simplefilter("ignore")
    from stompest.config import StompConfig
    from stompest.sync import Stomp

SECONDS = 60


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_session_of_1_0_finds_its_subscription_by_the_destination(
    tmp_path: Path, ack: str
) -> None:
    with GatewayProcess(tmp_path) as gateway:
        client = Stomp(StompConfig(f"tcp://{HOST}:{gateway.port}", "guest", "guest", "1.0"))
        client.connect(versions=["1.0"], connectTimeout=SECONDS, connectedTimeout=SECONDS)
        tokens = {name: client.subscribe(f"/queue/{name}", {"ack": ack}) for name in ("a", "b")}
        for name in ("a", "b"):
            client.send(f"/queue/{name}", name.encode())
            assert client.canRead(SECONDS)
            frame = client.receiveFrame()
            # It raises for a subscription that it does not know.
            assert client.message(frame) == tokens[frame.body.decode()]
            if ack != "auto":
                client.ack(frame, receipt=f"acknowledged {frame.body.decode()}")
                assert client.receiveFrame().command == "RECEIPT"
        client.unsubscribe(tokens["a"])
        client.disconnect(receipt="bye")
        assert client.receiveFrame().command == "RECEIPT"
        client.close()
