"""JSON logs of a gateway as a process.

Each line of each of its logs, and of what it prints, is one object without a secret.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.client import Client, Refused
from tests.crash.waiting import reload, until
from tests.gateway_process import COMMAND, HOST, GatewayProcess, free_port

pytestmark = pytest.mark.process

SECRET = "correct-horse-battery"
BAD_TRANSFORMER = f"""\
from gateway.messaging.transformer import MessageTransformer

class Failing(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        raise ValueError("password='{SECRET}'\\nand more")
"""
BRIDGE = f"""\
<jmsbridge name="orders">
  <link name="ab" transacted="false">
    <source connection-factory-ref="here" destination-ref="a"/>
    <target connection-factory-ref="there" destination-ref="a"/>
  </link>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="there" lookup-name="stomp://{HOST}:PORT" connect-attempts="1"/>
  <destination ref-name="a" name="A" type="queue"/>
</jmsbridge>
"""


def objects(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert {"time", "level", "logger", "message"} <= set(one), one
        assert set(one) <= {"time", "level", "logger", "message", "fields", "exception"}, one
    return found


def logs(gateway: GatewayProcess) -> dict[str, list[dict[str, Any]]]:
    files = [*gateway.directory.glob("log/*.txt"), *gateway.directory.glob("bridges/*/*.log")]
    return {path.name: objects(path.read_text()) for path in files}


def test_all_that_is_logged_and_printed_is_an_object_a_line(tmp_path: Path) -> None:
    extensions = tmp_path / "lib" / "ext"
    extensions.mkdir(parents=True)
    (extensions / "failing.py").write_text(BAD_TRANSFORMER)
    given = {
        "imq.log.format": "json",
        "imq.bridge.stomp.messageTransformer": "failing:Failing",
        "imq.bridge.activelist": "stomp,orders",
        "imq.bridge.orders.type": "jms",
        "imq.bridge.orders.xmlurl": "orders.xml",
        "imq.bridge.stomp.level": "FINE",
        "imq.cluster.masterbroker": "without effect, which is a warning",
    }
    gateway = GatewayProcess(tmp_path, settings=given, command=COMMAND)
    etc = gateway.directory / "etc"
    etc.mkdir(parents=True)
    bridge = etc / "orders.xml"
    bridge.write_text(BRIDGE.replace("PORT", str(free_port())))
    bridge.chmod(0o600)
    with gateway:
        gateway.wait_for_output("is ready")
        with pytest.raises(Refused):
            Client(gateway.port, login="mallory", passcode=SECRET)
        with Client(gateway.port) as client:
            client.send("/queue/q", b"x")
            client.error()
        until(lambda: any("exception" in one for one in logs(gateway)["stomp0.log"]), gateway.log)
        until(lambda: "link(ab)" in gateway.log, lambda: gateway.log)
        # What an older file has stays, and the next line begins anew.
        reload(gateway, "settings were read again")
        assert gateway.terminate() == 0

    found = logs(gateway)
    assert set(found) == {"log.txt", "stomp0.log", "orders0.log"}
    assert all(found.values())
    [failed] = [one for one in found["stomp0.log"] if "exception" in one]
    assert failed["level"] == "SEVERE"
    assert failed["exception"]["type"] == "builtins.ValueError"
    assert failed["exception"]["message"] == "password='********'\nand more"
    assert "in transform" in failed["exception"]["stacktrace"]
    # The starter is shown warnings and worse, once, and in the same form.
    printed = objects(gateway.said)
    assert any(one["message"].startswith("stomp-gateway ") for one in printed)
    assert sum("imq.cluster.masterbroker" in one["message"] for one in printed) == 1
    assert sum("mallory" in one["message"] for one in printed) == 1
    [refused] = [one for one in found["log.txt"] if "mallory" in one["message"]]
    assert refused["level"] == "WARNING"
    assert refused["logger"] == "gateway.stomp.connection"
    assert SECRET not in gateway.log + gateway.said


def test_json_logs_are_rotated_between_objects(tmp_path: Path) -> None:
    given = {
        "imq.log.format": "json",
        "imq.bridge.stomp.level": "FINE",
        "imq.bridge.stomp.logfile.limit": "1000",
        "imq.bridge.stomp.logfile.count": "3",
    }
    with GatewayProcess(tmp_path, settings=given) as gateway:
        with Client(gateway.port) as client:
            for number in range(12):
                client.ask("SUBSCRIBE", {"destination": f"/queue/{number}", "id": str(number)})
        gateway.terminate()
    found = logs(gateway)
    assert {"stomp0.log", "stomp1.log", "stomp2.log"} <= set(found)
    assert all(found[f"stomp{number}.log"] for number in (1, 2))


def test_a_start_that_is_refused_is_told_in_the_same_form(tmp_path: Path) -> None:
    given = {"imq.log.format": "json", "imq.bridge.stomp.messageTransformer": "nowhere:Class"}
    gateway = GatewayProcess(tmp_path, settings=given, command=COMMAND)
    gateway.launch()
    assert gateway.wait() == 2
    refused = objects(gateway.said)[-1]
    assert refused["level"] == "SEVERE"
    assert "nowhere" in refused["message"]
