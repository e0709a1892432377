"""Spans of a gateway as a process, as a collector gets them by OTLP/HTTP."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.cli.client import find
from gateway.instance import passfile
from tests.crash.client import Client
from tests.crash.waiting import until
from tests.gateway_process import HOST, GatewayProcess, free_port

pytestmark = pytest.mark.process

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED: Final = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"}
UNSAMPLED: Final = {"traceparent": f"00-{'1' * 32}-{PARENT}-00"}
BRIDGE: Final = """\
<jmsbridge name="orders">
  <link name="ab">
    <source connection-factory-ref="here" destination-ref="a"/>
    <target connection-factory-ref="here" destination-ref="b"/>
  </link>
  <connection-factory ref-name="here"/>
  <destination ref-name="a" name="A" type="queue"/>
  <destination ref-name="b" name="B" type="queue"/>
</jmsbridge>
"""


class Collector:
    """Keeps the spans that it is sent.

    :ivar status: what it answers.
    :ivar asked: how many requests came.
    :ivar endless: its answers do not end.
    :ivar stalled: its answers break off.
    :ivar octets: that such an answer had.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.status = 200
        self.asked = 0
        self.endless = False
        self.stalled = False
        self.octets = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def named(self, name: str) -> dict[str, Any]:
        [found] = [span for span in self.spans if span["name"] == name]
        return found


@contextmanager
def collecting(port: int = 0) -> Iterator[tuple[Collector, int]]:
    collector = Collector()

    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.asked += 1
            collector.may_answer.wait()
            if collector.status == 200:
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/json"
                for resource in json.loads(body)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        collector.spans += scope["spans"]
            self.send_response(collector.status)
            if collector.endless:
                self.close_connection = True
            else:
                self.send_header("content-length", "2")
            self.end_headers()
            if collector.stalled:
                self.wfile.write(b"{")
                collector.may_answer.clear()
                collector.may_answer.wait()
            self.wfile.write(b"{}")
            with suppress(OSError):
                while collector.endless:
                    self.wfile.write(bytes(1 << 16))
                    collector.octets += 1 << 16

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer((HOST, port), Requests)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector, server.server_address[1]
    finally:
        collector.may_answer.set()
        server.shutdown()
        server.server_close()


def traced(varhome: Path, port: int, **more: str) -> GatewayProcess:
    given = {
        "imq.journal.level": "all",
        "imq.tracing.endpoint": f"http://{HOST}:{port}/v1/traces",
        **{f"imq.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    return GatewayProcess(varhome, settings=given)


def metric(gateway: GatewayProcess, name: str, of: str = "tracing") -> float:
    address = find(HOST, gateway.port_mapper_port)
    password = passfile.read(gateway.directory / "etc" / "passfile")["imq.imqbridgemgr.password"]
    request = urllib.request.Request(
        f"http://{address.host}:{address.port}/metrics",
        headers={"Authorization": "Basic " + b64encode(f"admin:{password}".encode()).decode()},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f"stomp_gateway_{of}_{name} ")]
    return float(value)


def test_the_way_of_a_message_over_a_link_is_one_trace(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        gateway = traced(tmp_path, port)
        gateway.settings |= {
            "imq.bridge.activelist": "stomp,orders",
            "imq.bridge.orders.type": "jms",
            "imq.bridge.orders.xmlurl": "orders.xml",
        }
        etc = gateway.directory / "etc"
        etc.mkdir(parents=True)
        (etc / "orders.xml").write_text(BRIDGE)
        (etc / "orders.xml").chmod(0o600)
        with gateway, Client(gateway.port) as client:
            gateway.wait_for_output("link ab STARTED")
            client.ask("SUBSCRIBE", {"destination": "/queue/B", "id": "1", "ack": "client"})
            client.send("/queue/A", b"unseen", receipt="u", **UNSAMPLED)
            client.send("/queue/A", b"seen", receipt="s", **SAMPLED)
            frames = [client.frame() for _ in range(4)]
            received = [frame for frame in frames if frame.command == "MESSAGE"]
            assert received[1].headers["traceparent"] == SAMPLED["traceparent"]
            client.ask("ACK", {"id": received[1].headers["ack"]})
            until(lambda: len(collector.spans) == 7, lambda: str(collector.spans))
            assert metric(gateway, "spans_exported_total") == 7
            assert metric(gateway, "spans_dropped_total") == 0
            assert metric(gateway, "spans_waiting") == 0
            assert gateway.terminate() == 0
        assert len(collector.spans) == 7

    assert {(span["traceId"], span["traceState"]) for span in collector.spans} == {
        (TRACE, "rojo=1")
    }
    parents = {span["spanId"]: span["name"] for span in collector.spans}
    assert {
        span["name"]: parents.get(span["parentSpanId"], span["parentSpanId"])
        for span in collector.spans
    } == {
        "publish queue:A": PARENT,
        "receive queue:A": "publish queue:A",
        "settle queue:A": "receive queue:A",
        "transfer orders/ab": "receive queue:A",
        "publish queue:B": PARENT,
        "receive queue:B": "publish queue:B",
        "settle queue:B": "receive queue:B",
    }
    for span in collector.spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["status"] == {}
    starts = [
        int(collector.named(f"{name} queue:{queue}")["startTimeUnixNano"])
        for queue in "AB"
        for name in ("publish", "receive", "settle")
    ]
    assert starts[:3] == sorted(starts[:3])
    assert starts[3:] == sorted(starts[3:])


def test_messages_without_a_context_begin_traces_now_and_then(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        with traced(tmp_path, port, tracing_oneIn="5") as gateway, Client(gateway.port) as client:
            for _ in range(10):
                client.store("/queue/q", b"x")
            # What is not sent yet is sent at the end.
            gateway.terminate()
        published = [span for span in collector.spans if span["name"] == "publish queue:q"]
        assert len(published) == 2
        assert len({span["traceId"] for span in published}) == 2
        assert not any("parentSpanId" in span for span in published)


def test_each_message_of_one_producer_is_traced_as_it_asks(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            for number in range(1, 9):
                said = f"00-{number:032}-{PARENT}-0{number % 2}"
                client.store("/queue/q", b"x", number=f"{number}", traceparent=said)
                client.store("/queue/q", b"x", number=f"{number}")
            gateway.terminate()
        assert {span["traceId"] for span in collector.spans} == {
            f"{number:032}" for number in (1, 3, 5, 7)
        }


def test_spans_that_come_one_by_one_share_requests(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            begun = time.monotonic()
            while collector.asked < 10:
                client.store("/queue/q", b"x", **SAMPLED)
            took_s = time.monotonic() - begun
            gateway.terminate()
        # One in each second, one that is full for each 512 spans, and the last.
        assert collector.asked <= took_s + len(collector.spans) / 512 + 2


def test_a_collector_that_is_away_holds_nobody_up(tmp_path: Path) -> None:
    port = free_port()
    with traced(tmp_path, port, tracing_queue="4") as gateway, Client(gateway.port) as client:
        for _ in range(10):
            client.store("/queue/q", b"x", **SAMPLED)
        client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
        for _ in range(10):
            client.message()
        until(lambda: metric(gateway, "failures_total") >= 1, "it was never asked")
        until(lambda: "takes no spans" in gateway.log, lambda: gateway.log)
        with collecting(port) as (collector, _):
            collector.status = 503
            until(lambda: collector.asked >= 1, "it is not asked again")
            collector.status = 200
            until(lambda: collector.spans, lambda: gateway.log)
            until(lambda: metric(gateway, "spans_waiting") == 0, "spans wait")
            exported = metric(gateway, "spans_exported_total")
            assert exported == len(collector.spans)
            assert metric(gateway, "spans_dropped_total") == 30 - exported
            until(lambda: "takes spans again" in gateway.log, lambda: gateway.log)
        assert gateway.log.count("takes no spans") == 1


def test_a_collector_that_says_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        collector.may_answer.clear()
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            client.store("/queue/q", b"x", **SAMPLED)
            client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
            client.message()
            until(lambda: collector.asked == 1, "it is not asked")
            client.store("/queue/r", b"x")
            gateway.terminate()
            assert "Traceback" not in gateway.log, gateway.log


def test_an_answer_that_breaks_off_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        collector.stalled = True
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            client.store("/queue/q", b"x", **SAMPLED)
            until(lambda: not collector.may_answer.is_set(), "it is not asked")
            gateway.terminate()
            assert "is asked again: it does not answer in time" in gateway.log, gateway.log


def test_a_collector_that_refuses_is_counted(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        collector.status = 400
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            client.store("/queue/q", b"x", **SAMPLED)
            until(lambda: metric(gateway, "spans_dropped_total") == 1, lambda: gateway.log)
            assert "refuses 1 spans: it answers 400" in gateway.log
            client.store("/queue/q", b"x", **SAMPLED)
            until(lambda: metric(gateway, "spans_dropped_total") == 2, lambda: gateway.log)
            assert gateway.log.count("it answers 400") == 1


def test_an_answer_without_an_end_is_not_kept(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        collector.endless = True
        with traced(tmp_path, port) as gateway, Client(gateway.port) as client:
            client.store("/queue/q", b"x", **SAMPLED)
            until(lambda: metric(gateway, "spans_exported_total") == 1, lambda: gateway.log)
            # What the sockets hold is sent, and no more.
            assert collector.octets < 1 << 26
        collector.endless = False


def test_an_endpoint_that_is_no_url_is_refused(tmp_path: Path) -> None:
    gateway = traced(tmp_path, 1)
    gateway.settings["imq.tracing.endpoint"] = "localhost:4318"
    gateway.launch()
    assert gateway.wait() == 2
    assert "a URL such as http://127.0.0.1:4318/v1/traces" in gateway.said
