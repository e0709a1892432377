"""Advisory topics of ActiveMQ: who comes and goes, and who may know."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client, Frame
from tests.conformance.profiles.conftest import Join

ADVISORY = "/topic/ActiveMQ.Advisory."


@pytest.fixture
def listen(join: Join) -> Callable[..., Client]:
    """Have an administrator listen to advisory topics."""

    def listening(topic: str, profile: str = "activemq", **headers: str) -> Client:
        client = join(profile, login="admin", passcode="admin")
        client.subscribe(ADVISORY + topic, **headers)
        return client

    return listening


def until(client: Client, fits: Callable[[Frame], bool]) -> Frame:
    """Return the first MESSAGE that fits; others tell of what other tests do."""
    while not fits(message := client.message()):
        pass
    return message


def test_a_connection_comes_and_goes(join: Join, name: str, listen: Callable[..., Client]) -> None:
    client = listen("Connection")
    other = join("openmq", client_id=name)
    message = until(client, lambda each: name in each.text)
    assert message["destination"] == f"{ADVISORY}Connection"
    assert (message["type"], message["transformation"]) == ("Advisory", "jms-advisory-json")
    assert "persistent" not in message
    told = json.loads(message.text)["ConnectionInfo"]
    assert (told["clientId"], told["userName"], told["password"]) == (name, "guest", "")
    identifier = told["connectionId"]["value"]
    other.disconnect()
    gone = until(client, lambda each: identifier in each.text)
    assert json.loads(gone.text)["RemoveInfo"]["objectId"]["value"] == identifier


@pytest.mark.parametrize("asked", ["jms-xml", "jms-advisory-xml"])
def test_an_advisory_comes_as_xml(
    join: Join, name: str, listen: Callable[..., Client], asked: str
) -> None:
    client = listen("Connection", transformation=asked)
    join("openmq", client_id=name)
    message = until(client, lambda each: name in each.text)
    assert message["transformation"] == "jms-advisory-xml"
    assert message.text.startswith("<ConnectionInfo>\n  <connectionId>\n")
    assert f"<clientId>{name}</clientId>" in message.text


def test_a_consumer_comes_and_goes(join: Join, name: str, listen: Callable[..., Client]) -> None:
    client = listen("Consumer.>")
    other = join("openmq")
    for count in ("1", "2"):
        other.subscribe(f"/queue/{name}", id=count, selector="a = 1")
        message = until(client, lambda each: name in each["destination"])
        assert message["destination"] == f"{ADVISORY}Consumer.Queue.{name}"
        assert message["consumerCount"] == count
        told = json.loads(message.text)["ConsumerInfo"]
        assert told["destination"]["string"] == name
        assert (told["selector"], told["browser"]) == ("a = 1", False)
    other.ask("UNSUBSCRIBE", id="1")
    gone = until(client, lambda each: name in each["destination"])
    assert gone.text.startswith('{"RemoveInfo":')
    assert gone["consumerCount"] == "1"


def test_a_destination_is_made(join: Join, name: str, listen: Callable[..., Client]) -> None:
    queues, temporaries = listen("Queue"), listen("TempQueue")
    other = join("activemq")
    other.ask("SEND", {"destination": f"/queue/{name}", "reply-to": "/temp-queue/mine"})
    told = json.loads(until(queues, lambda each: name in each.text).text)["DestinationInfo"]
    assert told["destination"]["@class"] == "ActiveMQQueue"
    assert told["operationType"] == 0
    made = temporaries.message()
    assert '"@class":"ActiveMQTempQueue"' in made.text
    other.disconnect()
    until(temporaries, lambda each: '"operationType":1' in each.text)


def test_a_dead_message_is_told_of(join: Join, name: str, listen: Callable[..., Client]) -> None:
    dead, expired = listen(f"MessageDLQd.Queue.{name}"), listen("Expired.>")
    xml = listen(f"MessageDLQd.Queue.{name}", transformation="jms-xml")
    client = join("activemq")
    client.put(f"/queue/{name}", "refused", persistent="true")
    client.subscribe(f"/queue/{name}", ack="client")
    message = client.message()
    client.nack(message)
    told = dead.message()
    assert told["destination"] == f"{ADVISORY}MessageDLQd.Queue.{name}"
    identity = json.loads(told.text)["ActiveMQTextMessage"]["messageId"]["textView"]
    assert identity == message["message-id"]
    assert xml.message().text.startswith("<ActiveMQTextMessage>\n")
    client.put(f"/queue/{name}", "late", expires=str(int(time.time() * 1000) - 1000))
    told = until(expired, lambda each: name in each["destination"])
    assert told["orignalMessageId"] in told.text
    assert dead.message().text.startswith('{"ActiveMQTextMessage":')


def test_who_listens_is_told_what_there_is(
    join: Join, name: str, listen: Callable[..., Client]
) -> None:
    other = join("openmq", client_id=name)
    other.subscribe(f"/queue/{name}")
    until(listen("Connection"), lambda each: name in each.text)
    until(listen("Consumer.Queue.>"), lambda each: name in each.text)
    until(listen("Queue"), lambda each: name in each.text)


@pytest.mark.parametrize("topic", ["Connection", ">", "Consumer.Queue.any"])
def test_only_administrators_listen(join: Join, topic: str) -> None:
    client = join("activemq")
    client.send("SUBSCRIBE", {"id": "1", "destination": ADVISORY + topic})
    assert "may not consume" in client.expect("ERROR")["message"]
    client.sync()


def test_nobody_sends_advisories(join: Join) -> None:
    for login in ("guest", "admin"):
        client = join("activemq", login=login, passcode=login)
        client.send("SEND", {"destination": f"{ADVISORY}Connection"}, "forged")
        assert "may not produce" in client.expect("ERROR")["message"]


def test_wildcards_of_others_cover_no_advisories(
    join: Join, name: str, listen: Callable[..., Client]
) -> None:
    every = join("activemq", login="admin", passcode="admin")
    for pattern in (">", "ActiveMQ.>"):
        every.subscribe(f"/topic/{pattern}", id=pattern)
    client = listen("Connection")
    join("openmq", client_id=name)
    until(client, lambda each: name in each.text)
    every.send("SEND", {"destination": "/topic/ActiveMQ.other"}, name)
    for _ in range(2):
        assert not every.message()["destination"].startswith(ADVISORY)
