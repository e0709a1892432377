"""Clients that make queues without end, with a small memory budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.client import Client, Refused, encode
from tests.gateway_process import GatewayProcess
from tests.hostile.memory import MIB, resident


@pytest.mark.parametrize("temporary", [False, True], ids=["queues", "temporary"])
def test_clients_that_make_destinations_without_end_are_refused(
    temporary: bool, tmp_path: Path
) -> None:
    settings = {"imq.memory.budget": str(16 * MIB)}
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        with Client(gateway.port) as bystander:
            bystander.ask("SUBSCRIBE", {"destination": "/queue/other", "id": "1", "ack": "auto"})
            before = resident(gateway.pid)
            # Half of three quarters of 16 MiB is room for 1,200 queues.
            clients = [Client(gateway.port) for _ in range(5)]
            refused = None
            for turn in range(25):
                for number, client in enumerate(clients):
                    for place in range(20):
                        name = f"{number}.{turn}.{place}"
                        if temporary:
                            client.write(
                                encode(
                                    "SUBSCRIBE", {"destination": f"/temp-queue/{name}", "id": name}
                                )
                            )
                        else:
                            client.write(encode("SEND", {"destination": f"/queue/{name}"}, b"x"))
                    try:
                        client.store("/queue/other", b"hello")
                    except Refused as error:
                        refused = error
                        break
                    assert bystander.message().body == b"hello"
                if refused is not None:
                    break
            assert refused is not None, "nobody was refused"
            assert "no room for a " in str(refused)
            assert "imq.memory.budget" in str(refused)
            bystander.send("/queue/other", b"served")
            assert bystander.message().body == b"served"
            assert resident(gateway.pid) - before < 32 * MIB
            assert gateway.log.count("no memory for more destinations") == 1
            for client in clients:
                client.close()
        assert gateway.terminate() == 0, gateway.said
