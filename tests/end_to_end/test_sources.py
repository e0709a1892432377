"""What a link tells of its source, at real brokers: how long messages wait there, and what the
source refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.broker.security.access import DEFAULT_RULES
from tests.crash.client import Client
from tests.faults.links import HERE, BridgedGateway, Link, activemq, stomp
from tests.gateway_process import GatewayProcess
from tests.servers import activemq as running_activemq
from tests.servers import rabbitmq as running_rabbitmq

pytestmark = pytest.mark.brokers

ONCE = {"transacted": "true"}
WRONG = {"selector": "colour = = 'red'"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedGateway]:
    amq, rabbit = running_activemq(), running_rabbitmq()
    jms, by_stomp = activemq("jms", amq.openwire_port), stomp("amq", amq.port)
    links = [
        Link("here", HERE, HERE),
        Link("jms", jms, HERE),
        Link("once", jms, HERE, 1, "ONCE_AND_ONLY_ONCE", ONCE),
        Link("amq", by_stomp, HERE),
        Link("rabbit", stomp("rabbit", rabbit.port), HERE),
        Link("wrong-jms", jms, HERE, source_attributes=WRONG),
        Link("wrong-once", jms, HERE, 1, "ONCE_AND_ONLY_ONCE", ONCE, source_attributes=WRONG),
        Link("wrong-amq", by_stomp, HERE, source_attributes=WRONG),
    ]
    with ExitStack() as ending:
        peer = GatewayProcess(tmp_path_factory.mktemp("peer"))
        rules = peer.directory / "etc" / "accesscontrol.properties"
        rules.parent.mkdir(parents=True)
        rules.write_text(f"{DEFAULT_RULES}\nqueue.denied.in.consume.deny.user=guest\n")
        ending.enter_context(peer)
        links.append(Link("denied", stomp("peer", peer.port), HERE))
        yield ending.enter_context(BridgedGateway(tmp_path_factory.mktemp("sources"), links))


def port_of(link: str, gateway: BridgedGateway) -> int:
    ports = {"here": gateway.port, "rabbit": running_rabbitmq().port}
    return ports.get(link) or running_activemq().port


def test_the_lag_is_the_age_of_the_oldest_message_that_waits(gateway: BridgedGateway) -> None:
    links = ("here", "jms", "once", "amq")
    for link in links:
        idle = gateway.until_link(link, lambda told: told["lag_ms"] == 0, "nothing waits")
        assert idle["state"] == "STARTED"
        gateway.operate("pause", link)
    for link in links:
        with Client(port_of(link, gateway), headers={"host": "/"}) as client:
            for number in range(10):
                client.store(gateway.links[link].source_queue, b"%d" % number)
    for link in links:
        # It is browsed every ten seconds.
        told = gateway.until_link(link, lambda told: told["waiting"] == 10, "ten wait")
        before = told["lag_ms"]
        older = gateway.until_link(
            link,
            lambda now, before=before: now["lag_ms"] > before,  # type: ignore[misc]
            "it grows",
        )
        assert 0 < older["lag_ms"] < 600_000
        gateway.operate("resume", link)
    for link in links:
        gateway.until_link(
            link, lambda told: (told["lag_ms"], told["waiting"]) == (0, 0), "all is moved"
        )


def test_the_lag_is_unknown_where_the_broker_has_no_browsers(gateway: BridgedGateway) -> None:
    gateway.until_moving("rabbit")
    assert gateway.query("rabbit")["lag_ms"] == -1


@pytest.mark.parametrize("link", ["wrong-jms", "wrong-once", "wrong-amq"])
def test_a_selector_that_the_source_refuses_fails_the_link_at_once(
    link: str, gateway: BridgedGateway
) -> None:
    told = gateway.until_link(
        link, lambda told: told["state"] in ("FAILED", "RETRYING"), "it has ended"
    )
    assert told["state"] == "FAILED", told
    assert told["counters"]["reconnects"] == 0
    assert "selector" in told["last_error"]
    assert told["last_error"].startswith("source, connection-factory ")


def test_an_access_rule_of_a_stomp_broker_fails_the_link_at_once(gateway: BridgedGateway) -> None:
    told = gateway.until_link(
        "denied", lambda told: told["state"] in ("FAILED", "RETRYING"), "it has ended"
    )
    assert (told["state"], told["counters"]["reconnects"]) == ("FAILED", 0), told
    assert "user 'guest' may not consume on queue:denied.in" in told["last_error"]
