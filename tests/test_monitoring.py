"""The dashboard and the alerts, against the metrics of a gateway at work.

A real Prometheus scrapes a gateway with clients and links, evaluates the alerts and answers what
the dashboard asks. ``promtool`` runs the cases of ``alerts_test.yml``.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.cli import imqbridgemgr, imqcmd
from gateway.admin.cli.client import find
from gateway.instance import passfile
from tests.crash.client import Client
from tests.crash.waiting import until
from tests.gateway_process import HOST, GatewayProcess, free_port, heed_interrupts

pytestmark = pytest.mark.process

MONITORING: Final = Path(__file__).parents[1] / "docs" / "monitoring"
ALERTS: Final = MONITORING / "alerts.yml"
BRIDGE: Final = f"""\
<jmsbridge name="orders">
  <link name="ab">
    <source connection-factory-ref="here" destination-ref="a"/>
    <target connection-factory-ref="here" destination-ref="b"/>
  </link>
  <link name="lost" transacted="false" max-retries="0">
    <source connection-factory-ref="here" destination-ref="c"/>
    <target connection-factory-ref="there" destination-ref="b"/>
  </link>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="there" lookup-name="stomp://{HOST}:PORT" connect-attempts="1"/>
  <destination ref-name="a" name="A" type="queue"/>
  <destination ref-name="b" name="B" type="queue"/>
  <destination ref-name="c" name="C" type="queue"/>
</jmsbridge>
"""
PROMETHEUS: Final = """\
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: stomp-gateway
    basic_auth: {username: admin, password_file: password}
    static_configs: [{targets: ["ADDRESS"]}]
"""
#: What Grafana puts in place of its variables.
VARIABLES: Final = {
    "$job": "stomp-gateway",
    "$instance": ".+",
    "$bridge": "stomp|orders",
    "$__rate_interval": "4s",
}
#: Labels that Prometheus adds.
ADDED: Final = {"job", "instance"}
#: Metrics that have no series before a message dies, without TLS or without another broker behind,
#: and what labels they have then.
LATER: Final = {
    "stomp_gateway_link_messages_dead_total": {"bridge", "link", "reason"},
    "stomp_gateway_certificate_end_timestamp_seconds": {"service"},
    "stomp_gateway_provider_up": {"provider"},
}


@dataclass
class Scraped:
    """A gateway, and the Prometheus that scrapes it."""

    gateway: GatewayProcess
    address: str

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API says. :raises AssertionError: it is no success."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.address}{path}?{query}", timeout=60) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/api/v1/query", query=expression)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        [group] = self.ask("/api/v1/rules")["groups"]
        found: list[dict[str, Any]] = group["rules"]
        return found


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("monitoring")
    given = {
        "imq.bridge.activelist": "stomp,orders",
        "imq.bridge.orders.type": "jms",
        "imq.bridge.orders.xmlurl": "orders.xml",
    }
    gateway = GatewayProcess(folder, settings=given)
    etc = gateway.directory / "etc"
    etc.mkdir(parents=True)
    bridge = etc / "orders.xml"
    bridge.write_text(BRIDGE.replace("PORT", str(free_port())))
    bridge.chmod(0o600)
    with gateway:
        gateway.wait_for_output("is ready")
        admin = find(HOST, gateway.port_mapper_port)
        password = passfile.read(etc / "passfile")["imq.imqbridgemgr.password"]
        (folder / "password").write_text(password)
        config = PROMETHEUS.replace("ADDRESS", f"{admin.host}:{admin.port}")
        (folder / "prometheus.yml").write_text(config)
        # None waits until something has lasted.
        (folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 0s", ALERTS.read_text()))
        address = f"{HOST}:{free_port()}"
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, f"--web.listen-address={address}"],
                cwd=folder,
                stdout=log,
                stderr=log,
                preexec_fn=heed_interrupts,
            )
        try:
            yield _with_traffic(Scraped(gateway, address))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _with_traffic(scraped: Scraped) -> Scraped:
    """Move messages until Prometheus has seen more of them between two looks."""
    with Client(scraped.gateway.port) as client:
        client.store("/queue/C", b"waits")
        client.ask("SUBSCRIBE", {"destination": "/queue/D", "id": "1", "ack": "client"})
        client.send("/queue/D", b"dies")
        client.ask("NACK", {"id": client.message().headers["ack"], "requeue": "false"})

    def moved() -> bool:
        with Client(scraped.gateway.port) as client:
            client.store("/queue/A", b"x")
        try:
            rates = scraped.query("rate(stomp_gateway_link_messages_sent_total[4s]) > 0")
            dead = scraped.query('stomp_gateway_destination_messages{name="mq.sys.dmq"} > 0')
            return bool(rates and dead)
        except OSError:
            time.sleep(0.05)  # it does not listen yet
            return False

    until(moved, "Prometheus never saw messages move")
    return scraped


def panels() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard, after its panel's title."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, expression
            yield panel["title"], expression


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, each with the labels that select it."""
    for name, labels in re.findall(r"\b(stomp_gateway_\w+|up)\b(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels))


def grouped(expression: str) -> set[str]:
    """The labels by which an expression groups or joins."""
    lists = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",")}


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_alerts_and_their_cases() -> None:
    promtool("check", "rules", ALERTS.name)
    promtool("test", "rules", "alerts_test.yml")


def test_the_page_names_each_alert() -> None:
    page = (MONITORING.parent / "monitoring.rst").read_text()
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert re.findall(r"\* - ``(StompGateway\w+)``", page) == names
    assert set(names) == set(
        re.findall(r'alertname="(\w+)"', (MONITORING / "alerts_test.yml").read_text())
    ), "each has a case in which it fires"


def test_each_metric_and_label_is_there(scraped: Scraped) -> None:
    there: dict[str, set[str]] = {name: set(labels) for name, labels in LATER.items()}
    values: set[tuple[str, str]] = set()
    for series in scraped.query('{job="stomp-gateway"}'):
        labels = series["metric"]
        there.setdefault(labels["__name__"], set()).update(labels)
        values.update(labels.items())
    expressions = [rule["query"] for rule in scraped.rules()]
    for expression in [*expressions, *(text for _, text in panels())]:
        known = set(ADDED)
        for name, labels in used(expression):
            assert name in there, f"{name} of {expression}"
            assert labels <= there[name] | ADDED, f"{name} of {expression}"
            known |= there[name]
        assert grouped(expression) <= known, expression
        for state in re.findall(r'state(?:=|=~)"([^"]*)"', expression):
            assert {("state", each) for each in state.split("|")} <= values, expression


def test_the_dashboard_shows_something_in_each_panel(scraped: Scraped) -> None:
    every = {title for title, _ in panels()}
    shown = {title for title, expression in panels() if scraped.query(expression)}
    # Nothing of the kind of the last has happened.
    assert every - shown <= {"Dead, refused, possibly double"}


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    places = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places)), "panels overlap"
    assert max(x for x, _ in places) < 24
    datasources = {
        target["datasource"]["uid"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    assert datasources == {"${datasource}"}


def test_prometheus_raises_an_alert_of_what_is_wrong(scraped: Scraped) -> None:
    until(
        lambda: any(
            rule["name"] == "StompGatewayLinkFailed" and rule["state"] == "firing"
            for rule in scraped.rules()
        ),
        lambda: str(scraped.rules()),
    )
    rules = {rule["name"]: rule for rule in scraped.rules()}
    assert all(rule["health"] == "ok" for rule in rules.values()), rules
    firing = {name: rule["alerts"] for name, rule in rules.items() if rule["state"] == "firing"}
    assert [alert["annotations"]["summary"] for alert in firing["StompGatewayLinkFailed"]] == [
        "link lost of bridge orders has given up: `imqbridgemgr start link -bn orders -ln lost`"
    ]
    assert "StompGatewayDown" not in firing
    assert "StompGatewayBridgeNotStarted" not in firing
    unread = {alert["annotations"]["summary"] for alert in firing["StompGatewayDestinationUnread"]}
    assert any("`imqcmd why dst -t q -n B`" in summary for summary in unread), unread


def test_the_dead_of_a_queue_with_a_dead_queue_of_its_own_are_counted(scraped: Scraped) -> None:
    options = ["-b", f"{HOST}:{scraped.gateway.port_mapper_port}", "-u", "admin", "-f"]
    options += ["-passfile", str(scraped.gateway.directory / "etc" / "passfile")]
    made = ["create", "dst", "-t", "q", "-n", "E", "-o", "maximumRedeliveries=0"]
    assert imqcmd.run([*made, "-o", "deadLetterQueue=DLQ.", *options]) == 0

    def dead(count: int) -> None:
        with Client(scraped.gateway.port) as client:
            client.store("/queue/E", b"dies")
            client.ask("SUBSCRIBE", {"destination": "/queue/E", "id": "1", "ack": "client"})
            client.ask("NACK", {"id": client.message().headers["ack"]})
        shown = f'stomp_gateway_dead_queue_messages{{name="DLQ.E"}} == {count}'
        until(lambda: scraped.query(shown), lambda: str(scraped.query(shown)))

    dead(1)
    dead(2)
    every = [text for title, text in panels() if title == "Dead messages"]
    [stat] = [text for text in every if text.startswith("sum(")]
    assert float(scraped.query(stat)[0]["value"][1]) == 3
    alert = 'ALERTS{alertname="StompGatewayDeadMessages",name="DLQ.E",alertstate="firing"}'
    until(lambda: scraped.query(alert), lambda: str(scraped.rules()))
    assert not scraped.query('ALERTS{alertname="StompGatewayDestinationUnread",name="DLQ.E"}')


def test_each_summary_ends_with_a_command_that_works(scraped: Scraped) -> None:
    known = {"bridge": "orders", "link": "ab", "name": "B"}
    options = ["-b", f"{HOST}:{scraped.gateway.port_mapper_port}", "-u", "admin", "-f"]
    options += ["-passfile", str(scraped.gateway.directory / "etc" / "passfile")]
    programs = {"imqbridgemgr": imqbridgemgr.run, "imqcmd": imqcmd.run}
    tried = set()
    for rule in scraped.rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        summary = rule["annotations"]["summary"]
        summary = re.sub(r"\{\{ if .*? end \}\}", "q", summary)
        summary = re.sub(
            r"\{\{ \$labels\.(\w+) \}\}", lambda found: known.get(found[1], ""), summary
        )
        [command] = re.findall(r": `([^`]+)`$", summary)
        tried.add(command)
    for command in sorted(tried):
        program, *arguments = shlex.split(command)
        if program in programs:
            # The doctor has seen the dead message of these tests, and warns.
            expected = 1 if arguments == ["doctor"] else 0
            assert programs[program]([*arguments, *options]) == expected, command
        else:
            assert command in ("systemctl status stomp-gateway", "df -h /var/lib/stomp-gateway")
