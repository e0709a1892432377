"""What stops a whole broker: each scene has a gateway of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.messaging.xa import xid_text
from tests.conformance.client import Client, encode
from tests.gateway.broker.store.processes import build_faulty_disk
from tests.gateway_process import ROOT, GatewayProcess
from tests.why.prepared import XID
from tests.why.scenes import Scene, until

pytestmark = pytest.mark.process

MIB = 1 << 20


def fill(client: Client, destination: str, octets: int, count: int, **headers: str) -> None:
    """Send, without reading; until the gateway reads no more, or all are sent."""
    frame = encode("SEND", {"destination": destination, **headers}, b"x" * octets, "1.2")
    client._socket.settimeout(0.5)
    try:
        for _ in range(count):
            client._socket.sendall(frame)
    except TimeoutError:
        pass


def gone(scene: Scene, kind: str, queue: str) -> None:
    def kinds() -> list[str]:
        answer = scene.ask("destination", type="q", name=queue)
        return [each["kind"] for each in answer["causes"]]

    until(lambda: kind not in kinds(), lambda: str(kinds()))


def test_the_disk_is_full(tmp_path: Path) -> None:
    library, control = build_faulty_disk(tmp_path), tmp_path / "control"
    control.write_text("")
    varhome = tmp_path / "var"
    store = GatewayProcess(varhome).directory / "store"
    environment = dict(os.environ, LD_PRELOAD=str(library), FAULTY_DISK_CONTROL=str(control))
    environment["FAULTY_DISK"] = str(store)
    with GatewayProcess(varhome, environment=environment) as gateway:
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        control.write_text("space 0\n")
        with scene.client(**{"client-id": "sender"}) as client:
            fill(client, "/queue/orders", MIB, 100, persistent="true")
            cause = scene.queue("orders", "DISK_FULL")
            assert cause["figures"]["octets"]
            assert "senders are held back" in cause["sentence"]
            assert "disk" in scene.run(cause["command"])
            sender = scene.connection("sender")
            assert scene.cause("DISK_FULL", "connection", id=sender)
            control.write_text("")
            gone(scene, "DISK_FULL", "orders")


def test_waiting_messages_fill_the_memory(tmp_path: Path) -> None:
    settings = {"imq.memory.budget": "40m"}
    with GatewayProcess(tmp_path / "var", store="memory", settings=settings) as gateway:
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        with scene.client(**{"client-id": "sender"}) as client:
            fill(client, "/queue/orders", 100_000, 800)
            cause = scene.queue("orders", "MEMORY_FULL")
            assert cause["figures"]["octets"] > cause["figures"]["most"]
            assert "raise imq.memory.waiting" in cause["advice"]
            assert "orders" in scene.run(cause["command"])
            sender = scene.connection("sender")
            held = scene.ask("connection", id=sender)["causes"]
            assert {"MEMORY_FULL", "FLOW_CONTROL"} & {each["kind"] for each in held}, held
            scene.run("imqcmd purge dst -t q -n orders")
            gone(scene, "MEMORY_FULL", "orders")


def test_a_coordinator_that_has_yet_to_decide(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "var") as gateway:
        gateway.wait_for_output("is ready")
        gateway.terminate()
        store = gateway.directory / "store"
        ran = subprocess.run(
            [sys.executable, "-m", "tests.why.prepared", str(store), "taken", "sent"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == -signal.SIGKILL, ran.stdout + ran.stderr
        gateway.start()
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        of_source, of_target = (
            scene.queue(queue, "PREPARED_TRANSACTION") for queue in ("taken", "sent")
        )
        assert of_source["figures"] == {"sent": 0, "acknowledged": 1, "transactions": 1}
        assert of_target["figures"] == {"sent": 2, "acknowledged": 0, "transactions": 1}
        assert xid_text(XID) in of_source["sentence"]
        assert of_source["since_ms"]
        acknowledged, sent = ran.stdout.split()
        for id, said in (
            (acknowledged, "in queue 'taken', acknowl"),
            (sent, "sent to queue 'sent'"),
        ):
            of_message = scene.message(id, "PREPARED_TRANSACTION")
            assert of_message["figures"] == {"transaction": xid_text(XID)}
            assert said in of_message["sentence"]
        assert "PREPARED" in scene.run(of_source["command"])
        with closing(Client(gateway.port)) as client:
            client.connect()
            # The other one is free, and is not the one in doubt.
            assert client.left("/queue/taken") == ["1"]
        scene.run(f"imqcmd rollback txn -n {xid_text(XID)}")
        gone(scene, "PREPARED_TRANSACTION", "taken")
        gone(scene, "PREPARED_TRANSACTION", "sent")
        with closing(Client(gateway.port)) as client:
            client.connect()
            assert client.left("/queue/taken") == ["0"]
        # It was delivered, and to whom is not known here.
        [told] = scene.ask("message", id=acknowledged)["unknown"]
        assert told.startswith("The journal's level is links: ")
