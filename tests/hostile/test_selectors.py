"""Selectors that ask for as much work as they may, and messages that make them do it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.crash.client import Client, Refused, encode
from tests.gateway_process import GatewayProcess
from tests.hostile.bystander import Bystander

#: A value in which a pattern of LIKE must be looked for at each place, as long as a header line may
#: be.
LONG = "a" * 10_000


pytestmark = pytest.mark.usefixtures("bystander")


def costly(number: int, terms: int) -> str:
    """A selector that matches nothing of :data:`LONG`, and like no other."""
    return " OR ".join([f"p LIKE '%a_b{number}x{term}d_%'" for term in range(terms)])


def subscribe(client: Client, kind: str, numbers: range) -> None:
    for number in numbers:
        client.ask(
            "SUBSCRIBE",
            {"destination": f"/{kind}/costly", "id": str(number), "selector": costly(number, 60)},
        )


def test_a_selector_that_costs_too_much_is_refused_and_the_error_says_what_to_do(
    gateway: GatewayProcess,
) -> None:
    with Client(gateway.port) as client, pytest.raises(Refused) as refused:
        client.ask(
            "SUBSCRIBE", {"destination": "/queue/costly", "id": "1", "selector": costly(1, 300)}
        )
    text = refused.value.frame.body.decode()
    assert "is refused: the cost is " in text
    assert "imq.selectors.maxCost is 10000" in text
    assert "write fewer conditions" in text
    assert "have the operator raise that setting" in text


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_the_selectors_of_a_connection_may_not_cost_too_much_together(
    gateway: GatewayProcess, kind: str
) -> None:
    with Client(gateway.port) as client:
        subscribe(client, kind, range(20))
        with pytest.raises(Refused) as refused:
            subscribe(client, kind, range(20, 50))
    text = refused.value.frame.body.decode()
    assert "imq.selectors.maxCostPerConnection is 200000" in text
    assert "end other subscriptions" in text


def test_what_ended_subscriptions_cost_counts_no_more(gateway: GatewayProcess) -> None:
    with Client(gateway.port) as client:
        for number in range(60):
            headers = {
                "destination": "/queue/costly",
                "id": str(number),
                "selector": costly(number, 60),
            }
            client.ask("SUBSCRIBE", headers)
            client.ask("UNSUBSCRIBE", {"id": str(number)})


@pytest.mark.parametrize("which", ["queue", "topic", "durable"])
def test_others_are_served_while_selectors_are_asked(
    gateway: GatewayProcess, bystander: Bystander, which: str
) -> None:
    """The last message is what all wait for: it comes behind those that cost most."""
    kind = "queue" if which == "queue" else "topic"
    destination = f"/{kind}/costly.{which}"
    with ExitStack() as stack:
        last: list[Client] = []
        for number in range(5):
            client = stack.enter_context(
                Client(gateway.port, headers={"client-id": f"{which}{number}"})
            )
            last.append(client)
            for place in range(8):
                headers = {"destination": destination, "id": str(place), "ack": "client"}
                headers["selector"] = (
                    f"last = '{number}-{place}' OR {costly(100 * number + place, 60)}"
                )
                if which == "durable":
                    headers["durable-subscriber-name"] = f"d{place}"
                client.ask("SUBSCRIBE", headers)
        with Client(gateway.port) as producer:
            sent = [encode("SEND", {"destination": destination, "p": LONG}, b"not wanted")] * 20
            sent += [
                encode("SEND", {"destination": destination, "last": f"{n}-{p}"}, b"last")
                for n in range(5)
                for p in range(8)
            ]
            before = bystander.made
            producer.write(b"".join(sent))
        for client in last:
            received = [client.message() for _ in range(8)]
            assert [message.body for message in received] == [b"last"] * 8
        assert bystander.made - before >= 15, "the bystander had to wait for the selectors"
    if which == "queue":
        with Client(gateway.port) as consumer:
            consumer.ask("SUBSCRIBE", {"destination": destination, "id": "1"})
            assert [consumer.message().body for _ in range(20)] == [b"not wanted"] * 20
