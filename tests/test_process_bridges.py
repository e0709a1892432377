"""Bridges of the gateway as a process: links that move messages, what is said of those that fail,
and ends in time whatever a link is doing.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.client import Client
from tests.crash.waiting import until
from tests.gateway_process import COMMAND, HOST, GatewayProcess, free_port

pytestmark = pytest.mark.process

LINK = """\
<link name="{name}" {attributes}>
  <source connection-factory-ref="here" destination-ref="a"/>
  <target connection-factory-ref="{target}" destination-ref="b"/>
</link>
"""


def written(
    folder: Path,
    bridge: str = "orders",
    *,
    target: str = "here",
    port: int = 0,
    attributes: str = 'transacted="false"',
) -> Path:
    """The file of a bridge with a link from queue A to queue B.

    :param port: of a STOMP broker called ``there``.
    """
    path = folder / f"{bridge}.xml"
    link = LINK.format(name="ab", target=target, attributes=attributes)
    there = (
        f'<connection-factory ref-name="there" lookup-name="stomp://{HOST}:{port}" connect-attempt-interval-in-seconds="1"/>'
        if port
        else ""
    )
    path.write_text(
        f'<jmsbridge name="{bridge}">{link}<connection-factory ref-name="here"/>{there}'
        '<destination ref-name="a" name="A" type="queue"/><destination ref-name="b" name="B" type="queue"/></jmsbridge>'
    )
    path.chmod(0o600)
    return path


def settings(*names: str, **more: str) -> dict[str, str]:
    """An active list, and each bridge's type and file in ``etc``."""
    given = {"imq.bridge.activelist": ",".join(names)}
    for name in names:
        if name != "stomp":
            given |= {f"imq.bridge.{name}.type": "jms", f"imq.bridge.{name}.xmlurl": f"{name}.xml"}
    return given | {name.replace("_", "."): value for name, value in more.items()}


def gateway(
    varhome: Path, given: Mapping[str, str], command: Sequence[str] | None = None
) -> GatewayProcess:
    """An instance that is to have these bridges.

    :param command: starts it; None to fork it, where another test shows how it is imported.
    """
    process = GatewayProcess(varhome, settings=given, command=command)
    process.directory.joinpath("etc").mkdir(parents=True)
    return process


@contextmanager
def silent() -> Iterator[int]:
    """The port of somebody who accepts, and says nothing."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        yield listening.getsockname()[1]


def log_of(process: GatewayProcess, bridge: str) -> str:
    return (process.directory / "bridges" / bridge / f"{bridge}0.log").read_text()


def test_a_link_takes_what_a_stomp_client_sends_to_where_another_receives_it(
    tmp_path: Path,
) -> None:
    process = gateway(tmp_path, settings("stomp", "orders"), COMMAND)
    written(process.directory / "etc")
    with process, Client(process.port) as client:
        process.wait_for_output("bridge orders STARTED: link ab STARTED")
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        for number in range(10):
            client.send("/queue/A", b"%d" % number, kind="x")
        received = [client.message() for _ in range(10)]
        assert [frame.body for frame in received] == [b"%d" % number for number in range(10)]
        assert received[0].headers["kind"] == "x"
        assert process.terminate() == 0
        assert "link(ab)[here:D:queue:A-->here:D:queue:B]" in log_of(process, "orders")
        assert "bridge orders is STOPPED" in log_of(process, "orders")
        assert "Traceback" not in process.log, process.log
    with process, Client(process.port) as client:
        # It has left nothing behind that a second start would stumble over.
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        client.send("/queue/A", b"again")
        assert client.message().body == b"again"


@pytest.mark.parametrize("quality", ["DUPLICATES_OK", "ONCE_AND_ONLY_ONCE"])
def test_a_link_with_a_rate_takes_its_time_and_loses_nothing_when_it_is_killed(
    quality: str, tmp_path: Path
) -> None:
    process = gateway(tmp_path, settings("stomp", "orders"))
    written(
        process.directory / "etc",
        attributes=f'quality-of-service="{quality}" max-messages-per-second="40"',
    )
    bodies = [b"%d" % number for number in range(80)]
    arrived: list[bytes] = []
    with process:
        with Client(process.port) as client:
            for body in bodies[:-1]:
                client.send("/queue/A", body)
            began = time.monotonic()
            client.store("/queue/A", bodies[-1])
            client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "client"})
            for _ in range(20):
                client.message()
        # None was acknowledged, so all come again, to another client.
        process.restart(crash=True)
        with Client(process.port) as client:
            client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
            while bodies[-1] not in arrived:
                arrived.append(client.message().body)
        # What was saved before the first message, and what was counted while it was sent.
        assert time.monotonic() - began >= (len(bodies) - 16) / 40
    if quality == "ONCE_AND_ONLY_ONCE":
        assert arrived == bodies
    assert set(arrived) == set(bodies)


def test_a_link_drains_a_queue_that_is_named_like_several(tmp_path: Path) -> None:
    """Older versions made such a queue of ``SEND destination:/queue/B,/queue/C``. To STOMP it is
    two destinations now, to a link it is a name.
    """
    process = gateway(tmp_path, settings("stomp", "fill", "drain"))
    fill, drain = (written(process.directory / "etc", name) for name in ("fill", "drain"))
    fill.write_text(fill.read_text().replace('name="B"', 'name="B,/queue/C"'))
    drain.write_text(drain.read_text().replace('name="A"', 'name="B,/queue/C"'))
    with process, Client(process.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        for number in range(3):
            client.send("/queue/A", b"%d" % number)
        assert [client.message().body for _ in range(3)] == [b"0", b"1", b"2"]


def test_bridges_of_jms_only_are_a_process_too(tmp_path: Path) -> None:
    process = gateway(tmp_path, settings("orders"), COMMAND)
    written(process.directory / "etc")
    process.launch()
    try:
        process.wait_for_output("is ready")
        assert "bridge orders STARTED" in process.said
        assert "no bridge runs" not in process.said
        assert not process.mapped_ports()
        assert process.terminate() == 0
    finally:
        process.kill()


def test_what_fails_harms_no_other(tmp_path: Path) -> None:
    given = settings("broken", "stomp", "untyped", "orders", "strange", "nowhere")
    del given["imq.bridge.untyped.type"]
    given["imq.bridge.strange.type"] = "amqp"
    given["imq.bridge.elsewhere.type"] = "jms"
    process = gateway(tmp_path, given)
    written(process.directory / "etc")
    etc = process.directory / "etc"
    (etc / "broken.xml").write_text(
        '<jmsbridge name="broken">\n<link name="l"/>\n<lnk/>\n</jmsbridge>'
    )
    with process, Client(process.port) as client:
        process.wait_for_output("is ready")
        said = process.said
        assert f"bridge broken is not started: {etc}/broken.xml:2:" in said
        assert f"bridge broken is not started: {etc}/broken.xml:3:" in said
        assert (
            "bridge untyped is not started: imq.bridge.untyped.type is missing: expected JMS"
            in said
        )
        assert (
            said.count(
                "imq.bridge.elsewhere.type has no effect: imq.bridge.activelist has no elsewhere"
            )
            == 1
        )
        assert "imq.bridge.strange.type=amqp" in said
        assert (
            f"bridge nowhere is not started: {etc}/nowhere.xml: expected a file that can be read"
            in said
        )
        assert "no bridge could be started" not in said
        # Once each, and in the log of the bridge and the instance's.
        lines = [line for line in said.splitlines() if f"{etc}/broken.xml:" in line]
        assert len(lines) == len(set(lines)) > 1
        for line in lines:
            assert line in log_of(process, "broken")
            assert process.log.count(line) == 2
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        client.send("/queue/A", b"x")
        assert client.message().body == b"x"
        assert process.terminate() == 0


def test_no_bridge_that_could_be_started_ends_it(tmp_path: Path) -> None:
    process = gateway(tmp_path, settings("orders"), COMMAND)
    process.launch()
    assert process.wait() == 2
    assert "orders.xml: expected a file that can be read" in process.said
    assert "no bridge could be started" in process.said
    assert "Traceback" not in process.log


def test_without_the_bridges_user_a_jms_bridge_fails_by_name_and_stomp_runs(tmp_path: Path) -> None:
    process = gateway(
        tmp_path,
        {
            **settings("stomp", "orders"),
            "imq.bridge.admin.user": "",
            "imq.passfile.enabled": "false",
        },
    )
    written(process.directory / "etc")
    with process, Client(process.port) as client:
        process.wait_for_output("is ready")
        assert "-D: imq.bridge.admin.user=: expected the user as whom bridge orders" in process.said
        line = "the settings of the instance: no line imq.bridge.admin.password=...: expected the password with which bridge orders uses"
        assert line in process.said
        client.store("/queue/A", b"x")


def test_a_passfile_that_lacks_the_bridges_password_is_named(tmp_path: Path) -> None:
    with gateway(tmp_path, settings("stomp", "orders")) as process:
        assert process.terminate() == 0
        written(process.directory / "etc")
        passfile = process.directory / "etc" / "passfile"
        passfile.write_bytes(b"")
        process.start()
        process.wait_for_output("is ready")
        line = f"bridge orders is not started: {passfile}: no line imq.bridge.admin.password=...: expected the password with which"
        assert line in process.said


def test_a_transacted_link_is_refused_by_name_and_with_the_remedy(tmp_path: Path) -> None:
    process = gateway(tmp_path, settings("stomp", "orders"))
    # This gateway, of which nothing is known.
    path = written(process.directory / "etc", target="there", port=process.port, attributes="")
    generic = 'username="guest" password="guest"><property name="stomp.dialect" value="generic"/></connection-factory>'
    path.write_text(path.read_text().replace('connect-attempt-interval-in-seconds="1"/>', generic))
    with process:
        process.wait_for_output("bridge orders STARTED: link ab FAILED")
        log = log_of(process, "orders")
        assert (
            "link ab is transacted, and cannot be: its target, connection-factory 'there' (stomp-gateway), neither takes part in XA"
            in log
        )
        assert 'or else quality-of-service="DUPLICATES_OK"' in log


def test_a_link_that_says_nothing_is_transacted_and_works(tmp_path: Path) -> None:
    process = gateway(tmp_path, settings("stomp", "orders"))
    written(process.directory / "etc", attributes="")
    with process, Client(process.port) as client:
        process.wait_for_output("bridge orders STARTED: link ab STARTED")
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        client.send("/queue/A", b"whole")
        assert client.message().body == b"whole"


@pytest.mark.parametrize("answers", [False, True])
def test_it_ends_in_time_while_a_link_tries_to_connect(tmp_path: Path, answers: bool) -> None:
    with silent() as silent_port:
        process = gateway(tmp_path, settings("stomp", "orders"))
        written(
            process.directory / "etc", target="there", port=silent_port if answers else free_port()
        )
        with process, Client(process.port) as client:
            client.store("/queue/A", b"stays")
            process.wait_for_output("is ready")
            until(
                lambda: answers or "attempt 2 in" in log_of(process, "orders"), lambda: process.log
            )
            began = time.monotonic()
            process.signal(signal.SIGTERM)
            assert process.wait() == 0
            # Ten seconds are promised to an idle machine; this one may be busy.
            assert time.monotonic() - began < 20
        assert "Traceback" not in process.log, process.log
    written(process.directory / "etc")
    with process, Client(process.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        assert client.message().body == b"stays"


def test_levels_of_the_bridges_logs_follow_the_settings(tmp_path: Path) -> None:
    process = gateway(tmp_path, settings("stomp", "orders"))
    written(process.directory / "etc")
    with process, Client(process.port) as client:
        process.wait_for_output("is ready")
        file = process.directory / "etc" / "gateway.properties"
        file.write_text(file.read_text() + "imq.bridge.orders.level=WARNING\n")
        process.signal(signal.SIGHUP)
        until(lambda: "settings were read again" in process.log, lambda: process.log)
        client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "auto"})
        client.send("/queue/A", b"x")
        assert client.message().body == b"x"
        assert process.terminate() == 0
        assert "was transferred" not in log_of(process, "orders")
        assert "bridge orders is STARTED" in log_of(process, "orders")


@pytest.mark.parametrize("jms", [False, True])
def test_what_only_jms_bridges_need_is_not_imported_without_one(tmp_path: Path, jms: bool) -> None:
    told = "import atexit, sys; from gateway.command import main; atexit.register(lambda: print('had', *sorted(sys.modules), '.')); main()"
    process = GatewayProcess(
        tmp_path,
        settings=settings("stomp", "orders") if jms else None,
        command=(sys.executable, "-c", told),
    )
    process.directory.joinpath("etc").mkdir(parents=True)
    written(process.directory / "etc")
    with process:
        process.wait_for_output("is ready")
        assert process.terminate() == 0
        had = set(process.said.rpartition("had ")[2].split())
    assert "gateway.app" in had
    assert had & {"bridge.providers.jms.process", "stompest.protocol"} == set()
    assert had & {"lxml", "bridge.jms_bridge"} == ({"lxml", "bridge.jms_bridge"} if jms else set())


def test_rules_as_they_are_documented(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "jmsbridge.rst").read_text()
    block = page.split(".. _link-rules:")[1].split(".. code-block:: xml\n")[1].split("\n* ")[0]
    places = "".join(
        f'<destination ref-name="{name}" name="{name}"/>'
        for name in ("orders", "elsewhere", "germany")
    )
    process = gateway(tmp_path, settings("stomp", "orders"))
    file = process.directory / "etc" / "orders.xml"
    file.write_text(
        f'<jmsbridge name="orders">{block}<connection-factory ref-name="here"/>{places}</jmsbridge>'
    )
    with process, Client(process.port) as client:
        process.wait_for_output("link orders STARTED")
        for number, queue in enumerate(("elsewhere", "germany")):
            client.ask("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": f"{number}"})
        client.send("/queue/orders", b"a test", status="test", country="DE", amount="500")
        client.send("/queue/orders", b"large", country="DE", amount="500", customer="7")
        client.send(
            "/queue/orders", b"small", **{"x-debug-a": "1", "x-other": "2", "order_id": "17"}
        )
        first, second = sorted(
            (client.message() for _ in range(2)), key=lambda frame: frame.body, reverse=True
        )
    assert (first.body, first.headers["destination"]) == (b"small", "/queue/elsewhere")
    assert first.headers["correlation-id"] == "17"
    assert (first.headers["channel"], first.headers["attempts"]) == ("web", "1")
    assert "x-debug-a" not in first.headers
    assert first.headers["x-other"] == "2"
    assert (second.body, second.headers["destination"]) == (b"large", "/queue/germany")
    assert (second.headers["customer_id"], second.headers["priority"]) == ("7", "9")
    assert "customer" not in second.headers
