"""What SUBSCRIBE says of RabbitMQ's queues."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join


@pytest.mark.parametrize("place", ["/topic/{}", "/exchange/amq.direct/{}", "/exchange/amq.fanout"])
def test_a_name_of_a_queue_is_refused(join: Join, name: str, place: str) -> None:
    client = join("rabbitmq")
    headers = {"destination": place.format(name), "id": "s", "x-queue-name": name, "receipt": "r"}
    client.send("SUBSCRIBE", headers)
    error = client.expect("ERROR")
    assert (error["message"], error["receipt-id"]) == ("Invalid header", "r")
    assert error.text.startswith("'x-queue-name' is not allowed on 'SUBSCRIBE'")
    assert "durable:true" in error.text
    # Without it the subscription is made.
    client.subscribe(place.format(name))
    client.send("SEND", {"destination": place.format(name)}, "body")
    assert client.message().text == "body"


def test_a_queue_has_its_own_name(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.subscribe(f"/queue/{name}", **{"x-queue-name": "another"})
    client.send("SEND", {"destination": f"/queue/{name}"}, "body")
    assert client.message().text == "body"


def test_other_profiles_do_not_read_it(join: Join, name: str) -> None:
    client = join("activemq")
    client.subscribe(f"/topic/{name}", **{"x-queue-name": name})
    client.send("SEND", {"destination": f"/topic/{name}"}, "body")
    assert client.message().text == "body"
