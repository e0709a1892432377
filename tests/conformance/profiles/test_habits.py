"""What a profile does beside the table of its page."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import Join


@pytest.mark.parametrize("profile", ["openmq", "standard", "activemq", "artemis"])
def test_a_message_tells_who_has_sent_it(join: Join, name: str, profile: str) -> None:
    client = join(profile)
    client.send("SEND", {"destination": f"/queue/{name}", "JMSXUserID": "forged"}, "body")
    client.subscribe(f"/queue/{name}")
    assert client.message()["JMSXUserID"] == "guest"


def test_rabbitmq_does_not_tell_who_has_sent_a_message(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.put(f"/queue/{name}", "body")
    client.subscribe(f"/queue/{name}")
    assert "JMSXUserID" not in client.message()


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_activemq_trims_destinations(join: Join, name: str, version: str) -> None:
    client = join("activemq", version)
    client.ask("SUBSCRIBE", {"destination": f" /queue/{name} ", "id": "s"})
    for destination in (f" /queue/{name} ", f"  {name}", f"/queue/{name}"):
        client.send("SEND", {"destination": destination}, "body")
    assert len(client.messages(3)) == 3


@pytest.mark.parametrize(
    "form", ["/queue/{0},topic://{0}", "/topic/{0},queue://{0}", "topic://{0},{0}"]
)
def test_activemq_joins_queues_and_topics(join: Join, name: str, form: str) -> None:
    both, sender = join("activemq"), join("activemq")
    both.subscribe(f"/queue/{name}", id="q")
    both.subscribe(f"/topic/{name}", id="t")
    sender.put(form.format(name), "to both")
    assert {each["subscription"] for each in both.messages(2)} == {"q", "t"}
    for id in "qt":
        both.ask("UNSUBSCRIBE", id=id)
    both.subscribe(form.format(name), id="c")
    for kind in ("queue", "topic"):
        sender.put(f"/{kind}/{name}", kind)
    assert {each["destination"] for each in both.messages(2)} == {
        f"/queue/{name}",
        f"/topic/{name}",
    }


def test_activemq_has_a_queue_of_a_name_with_a_scheme(join: Join, name: str) -> None:
    client = join("activemq")
    client.subscribe(f"topic://{name}")
    client.put(f"/topic/{name}", "to the topic")
    client.send("SEND", {"destination": f"topic://{name}"}, "to the queue")
    assert client.message().text == "to the queue"


@pytest.mark.parametrize(
    ("form", "means"),
    [
        ("/queue/topic://{}", "/topic/{}"),
        ("/topic/topic://{}", "/topic/{}"),
        ("/topic/queue://{}", "/queue/{}"),
        ("/queue/queue://{}?consumer.priority=3", "/queue/{}"),
    ],
)
def test_activemq_reads_a_scheme_behind_the_kind(
    join: Join, name: str, form: str, means: str
) -> None:
    client, sender = join("activemq"), join("activemq")
    client.subscribe(form.format(name), id="1")
    client.subscribe(means.format(f"{name}.answers"), id="2")
    sender.put(means.format(name), "one")
    assert client.message()["destination"] == means.format(name)
    sender.put(form.format(f"{name}.answers"), "two")
    assert client.message()["subscription"] == "2"


def test_activemq_has_the_kind_of_the_first_scheme_for_all(join: Join, name: str) -> None:
    client, sender = join("activemq"), join("activemq")
    client.subscribe(f"/queue/topic://{name}.a,{name}.b")
    for topic in (f"/topic/{name}.a", f"/topic/{name}.b"):
        sender.put(topic, topic)
        assert client.message()["destination"] == topic


def test_activemq_sends_to_another_ones_temporary_queue_by_its_scheme(
    join: Join, name: str
) -> None:
    client, other = join("activemq"), join("activemq")
    client.subscribe("/temp-queue/mine", id="t")
    other.subscribe(f"/queue/{name}", id="q")
    client.send("SEND", {"destination": f"/queue/{name}", "reply-to": "/temp-queue/mine"})
    answer = other.message()["reply-to"].replace("/remote-temp-queue/", "/queue/temp-queue://")
    other.put(answer, "answer")
    assert client.message()["subscription"] == "t"


def test_activemq_drops_what_a_transaction_rejects_and_is_not_persistent(
    join: Join, name: str
) -> None:
    dead = join("activemq")
    dead.subscribe("/queue/ActiveMQ.DLQ", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'")
    client = join("activemq")
    client.put(f"/queue/{name}", "unstored")
    client.put(f"/queue/{name}", "stored", persistent="true")
    client.subscribe(f"/queue/{name}", ack="client")
    client.send("BEGIN", transaction="t")
    for message in client.messages(2):
        client.nack(message, transaction="t")
    client.ask("COMMIT", transaction="t")
    assert dead.message().text == "stored"


def test_activemq_drops_nothing_that_asks_to_be_kept(join: Join, name: str) -> None:
    dead = join("activemq")
    dead.subscribe("/queue/ActiveMQ.DLQ", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'")
    client = join("activemq")
    client.put(f"/queue/{name}", "kept", JMS_SUN_PRESERVE_UNDELIVERED="true")
    client.subscribe(f"/queue/{name}", ack="client")
    client.nack(client.message())
    assert dead.message().text == "kept"


def test_activemq_tells_why_a_message_is_dead(join: Join, name: str) -> None:
    dead = join("activemq")
    dead.subscribe("/queue/ActiveMQ.DLQ", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'")
    client = join("activemq")
    past = str(int(time.time() * 1000) - 1000)
    client.put(f"/queue/{name}", "expired", expires=past)
    expired = dead.message()
    assert (expired["originalExpiration"], expired["expires"]) == (past, "0")
    cause = expired["dlqDeliveryFailureCause"]
    assert cause == f"java.lang.Throwable: Message Expired. Expiration:{past}"
    client.put(f"/queue/{name}", "refused", persistent="true")
    client.subscribe(f"/queue/{name}", ack="client")
    client.nack(client.message())
    refused = dead.message()
    assert refused["originalExpiration"] == "0"
    assert refused["dlqDeliveryFailureCause"] == "refused by its consumer once"


def test_activemqs_header_names_a_durable_subscription(join: Join, name: str) -> None:
    client = join("activemq", client_id=name)
    durable = {"id": "s", "activemq.subscriptionName": "d"}
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.ask("UNSUBSCRIBE", id="s")
    client.ask("UNSUBSCRIBE", {**durable, "durable-subscription-name": "another"})
    client.put(f"/topic/{name}", "lost", persistent="true")
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.send("SEND", {"destination": f"/topic/{name}"}, "later")
    assert client.message().text == "later"


JSON = '{"map":{"entry":[{"string":["name","Dejan"]},{"string":"size","int":5}]}}'
XML = (
    "<map><entry><string>name</string><string>Dejan</string></entry>"
    "<entry><string>size</string><int>5</int></entry></map>"
)


def _comes_as(
    join: Join, name: str, sent: str, body: str, asked: str, form: str, comes: str
) -> None:
    """Texts that are sent in one form come in another, each of many."""
    client = join("activemq")
    client.subscribe(f"/queue/{name}", **({"transformation": asked} if asked else {}))
    # The gateway learns what a producer repeats.
    for number in range(20):
        headers = {"destination": f"/queue/{name}", "transformation": sent, "n": str(number)}
        client.send("SEND", headers, body)
    for number, message in enumerate(client.messages(20)):
        assert (message["transformation"], message["n"]) == (form, str(number))
        assert "".join(message.text.split()) == comes
        assert "transformation-error" not in message


@pytest.mark.parametrize(
    ("sent", "body", "asked", "form", "comes"),
    [
        ("jms-map-json", JSON, "jms-xml", "jms-map-xml", XML),
        ("jms-map-xml", XML, "jms-json", "jms-map-json", JSON),
        ("jms-map-xml", XML, "", "jms-map-xml", XML),
        ("jms-map-xml", XML, "unknown", "jms-map-xml", ""),
    ],
)
def test_activemq_makes_maps_of_texts(
    join: Join, name: str, sent: str, body: str, asked: str, form: str, comes: str
) -> None:
    _comes_as(join, name, sent, body, asked, form, comes)


POJO_XML = "<pojo><name>Dejan</name><city>Belgrade</city></pojo>"
POJO_JSON = '{"pojo":{"name":"Dejan","city":"Belgrade"}}'


@pytest.mark.parametrize(
    ("sent", "body", "asked", "form", "comes"),
    [
        ("jms-object-json", POJO_JSON, "jms-object-xml", "jms-object-xml", POJO_XML),
        ("jms-object-xml", POJO_XML, "jms-object-json", "jms-object-json", POJO_JSON),
        ("jms-object-xml", POJO_XML, "jms-json", "jms-object-json", POJO_JSON),
        ("jms-object-json", POJO_JSON, "jms-xml", "jms-object-xml", POJO_XML),
        ("jms-object-xml", POJO_XML, "", "jms-object-xml", POJO_XML),
        ("jms-object-xml", POJO_XML, "unknown", "jms-object-xml", POJO_XML),
    ],
)
def test_activemq_turns_objects_into_the_form_that_is_asked_for(
    join: Join, name: str, sent: str, body: str, asked: str, form: str, comes: str
) -> None:
    _comes_as(join, name, sent, body, asked, form, comes)


def test_what_another_profile_calls_an_object_comes_as_it_is(join: Join, name: str) -> None:
    client = join("activemq")
    client.subscribe(f"/queue/{name}", transformation="jms-json")
    sent = {"destination": f"/queue/{name}", "transformation": "jms-object-xml"}
    join("openmq").send("SEND", sent, "Hello World")
    message = client.message()
    assert message.text == "Hello World"
    assert "no XML" in message["transformation-error"]


def test_activemq_words_two_errors_as_its_clients_compare_them(
    join: Join, dial: Callable[[str], Client]
) -> None:
    client = join("activemq")
    client.send("UNSUBSCRIBE", {"id": "nowhere"})
    assert client.expect("ERROR")["message"] == "No subscription matched."
    client.sync()
    stranger = dial("activemq")
    stranger.send("SUBSCRIBE", {"id": "1", "destination": "/queue/any"})
    assert stranger.expect("ERROR")["message"] == "Not connected."


def test_other_profiles_read_no_maps(join: Join, name: str) -> None:
    client = join("openmq")
    client.subscribe(f"/queue/{name}")
    sent = {"destination": f"/queue/{name}", "transformation": "jms-map-xml"}
    client.send("SEND", sent, XML)
    assert client.message().text == XML
    typed = join("activemq")
    typed.send("SEND", {**sent, "destination": f"/queue/{name}.map"}, XML)
    whole = join("openmq")
    whole.subscribe(f"/queue/{name}.map", envelope="true")
    assert b"Dejan" in whole.message().body


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ("jms-object-xml", "Hello World"),
        ("jms-object-json", "<object/>"),
        ("jms-map-xml", "Hello World"),
        ("jms-map-json", '{"city":"Belgrade"}'),
        ("jms-json", JSON),
    ],
)
def test_activemq_tells_what_it_cannot_transform(
    join: Join, name: str, asked: str, body: str
) -> None:
    client = join("activemq")
    client.subscribe(f"/queue/{name}")
    headers = {"destination": f"/queue/{name}", "transformation-error": "forged"}
    client.send("SEND", {**headers, "transformation": asked}, body)
    message = client.message()
    assert (message.text, message["transformation"]) == (body, asked)
    assert message["transformation-error"] not in ("", "forged")
    client.send("SEND", {**headers, "transformation": "unknown"}, body)
    message = client.message()
    assert (message.text, message["transformation"]) == (body, "unknown")
    assert "transformation-error" not in message


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_artemis_names_queues_with_their_addresses(join: Join, name: str, version: str) -> None:
    client = join("artemis", version)
    client.ask("SUBSCRIBE", {"destination": f"address::{name}", "id": "s"})
    for number, text in enumerate((name, f"::{name}", f"{name}::{name}", f"/queue/{name}")):
        client.send("SEND", {"destination": text}, str(number))
    messages = client.messages(4)
    assert [each.text for each in messages] == list("0123")
    assert messages[2]["destination"] == f"{name}::{name}"


@pytest.mark.parametrize("profile", ["openmq", "artemis"])
def test_selectors_name_headers_with_hyphens(join: Join, name: str, profile: str) -> None:
    client = join(profile)
    client.subscribe(f"/queue/{name}", selector="hyphenated_props:foo-bar = 'zzz'")
    # The gateway learns what a producer repeats.
    for number in range(20):
        wanted = "zzz" if number % 2 else "no"
        client.send("SEND", {"destination": f"/queue/{name}", "foo-bar": wanted}, str(number))
    assert [each.text for each in client.messages(10)] == [str(each) for each in range(1, 20, 2)]


@pytest.mark.parametrize(
    ("destination", "type", "kind"),
    [
        ("jms.queue.{}", "", "queue"),
        ("jms.{}", "", "queue"),
        ("jms.topic.{}", "", "topic"),
        ("jms.queue.{}", "MULTICAST", "topic"),
        ("jms.topic.{}", "ANYCAST", "queue"),
        ("/queue/{}", "", "queue"),
        ("/topic/{}", "", "topic"),
        ("{}", "ANYCAST", "queue"),
        ("{}", "MULTICAST", "topic"),
    ],
)
def test_artemis_prefixes(join: Join, name: str, destination: str, type: str, kind: str) -> None:
    client, other = join("prefixed"), join("openmq")
    other.subscribe(f"/{kind}/{name}")
    named = destination.format(name)
    sent = {"destination": named, "reply-to": "jms.queue.answers"}
    client.ask("SEND", {**sent, **({"destination-type": type} if type else {})}, "there")
    assert other.message().text == "there"
    other.ask("UNSUBSCRIBE", id="s")
    asked = {"destination": named, "id": "s"}
    client.ask("SUBSCRIBE", {**asked, **({"subscription-type": type} if type else {})})
    client.send("SEND", {**sent, **({"destination-type": type} if type else {})}, "here")
    message = client.message()
    assert (message.text, message["destination"]) == ("here", named)
    assert message["reply-to"] == "jms.queue.answers"


def test_artemis_prefixes_go_before_wildcards(join: Join, name: str) -> None:
    client, sender = join("prefixed"), join("openmq")
    client.ask("SUBSCRIBE", {"destination": f"jms.topic.{name}.#", "id": "s"})
    sender.put(f"/topic/{name}.a", "a")
    assert client.message().text == "a"


@pytest.mark.parametrize("profile", ["activemq", "artemis"])
@pytest.mark.parametrize(
    "selector",
    [
        "AMQPriority > 5",
        "AMQDurable = 'DURABLE' AND AMQPriority = 7",
        "AMQTimestamp BETWEEN 1 AND 9000000000000",
        "AMQExpiration = 9000000000000",
        "AMQSize > 1000",
        "AMQGroupID = 'g'",
        "AMQUserID <> '' AND age = 20",
        "AMQAddress LIKE 'profiles.%' AND age = 20",
        "hyphenated_props:for-age > 18 AND more-of-it = 'yes'",
        "XPATH 'order/item[@n=''2'']'",
        "age = 20 AND NOT xpath '//none'",
        "convert_string_expressions:age > 18",
        "convert_string_expressions:hyphenated_props:for-age > 18",
    ],
)
def test_selectors_of_artemis(join: Join, name: str, profile: str, selector: str) -> None:
    client = join(profile)
    wanted = {"priority": "7", "persistent": "true", "expires": "9000000000000"}
    wanted |= {"destination": f"/queue/{name}", "age": "20", "for-age": "20"}
    wanted |= {"JMSXGroupID": "g", "more-of-it": "yes"}
    other = {"destination": f"/queue/{name}", "priority": "3", "age": "9", "for-age": "9"}
    if "Timestamp" not in selector:
        client.send("SEND", other, "no <xml>")
    body = "<order><item n='2'/>" + " " * 1000 + "</order>"
    client.send("SEND", wanted, body)
    client.subscribe(f"/queue/{name}", selector=selector)
    assert client.message().text == body
    assert client.sync() == []


def test_a_property_goes_before_a_name_of_artemis(join: Join, name: str) -> None:
    client = join("artemis")
    headers = {"destination": f"/queue/{name}", "priority": "7"}
    client.send("SEND", {**headers, "AMQPriority": "2"}, "property")
    client.send("SEND", headers, "priority")
    client.subscribe(f"/queue/{name}", selector="AMQPriority = 7")
    assert client.message().text == "priority"
    assert client.sync() == []


@pytest.mark.parametrize("header", ["_AMQ_GROUP_ID", "JMSXGroupID"])
def test_artemis_has_its_own_name_of_a_group(join: Join, name: str, header: str) -> None:
    clients = [join("artemis"), join("artemis")]
    for client in clients:
        client.subscribe(f"/queue/{name}")
    sender = join("artemis")
    # The gateway learns what a producer repeats.
    for number in range(40):
        sent = {"destination": f"/queue/{name}", header: "ab"[number % 2], "n": str(number)}
        sender.send("SEND", sent, str(number))
    groups = []
    for client in clients:
        messages = client.messages(20)
        assert [int(each["n"]) % 2 for each in messages] in ([0] * 20, [1] * 20)
        groups.append({each["_AMQ_GROUP_ID"] for each in messages})
        assert client.sync() == []
    assert sorted(map(sorted, groups)) == [["a"], ["b"]]


@pytest.mark.parametrize("text", ["::", "queue::", "a::b::c"])
def test_artemis_refuses_incomplete_names(join: Join, text: str) -> None:
    client = join("artemis", "1.1")
    client.send("SUBSCRIBE", {"destination": text, "id": "s", "receipt": "r"})
    error = client.expect("ERROR")
    assert error["receipt-id"] == "r"
    assert f"Invalid queue name: {text}" in error.text


def test_activemq_takes_no_timestamp_that_is_none(join: Join, name: str) -> None:
    client = join("activemq")
    client.send("SEND", {"destination": f"/queue/{name}", "timestamp": "now", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"
    assert client.left(f"/queue/{name}") == []


def test_activemq_finds_an_expired_message_in_the_dead_queue_at_once(join: Join, name: str) -> None:
    sender, dead = join("activemq"), join("activemq")
    dead.subscribe("/queue/ActiveMQ.DLQ")
    sender.put(f"/queue/{name}", name, expires=str(10**11))
    while (found := dead.message()).text != name:
        pass
    assert found["original-destination"] == f"/queue/{name}"


@pytest.mark.parametrize("priority", ["128", "-129", "high"])
def test_a_priority_that_activemq_does_not_have_is_refused(
    join: Join, name: str, priority: str
) -> None:
    client = join("activemq")
    asked = {"destination": f"/queue/{name}", "id": "1", "activemq.priority": priority}
    client.send("SUBSCRIBE", asked)
    assert "activemq.priority" in client.expect("ERROR")["message"]
    client.sync()


@pytest.mark.parametrize("profile", ["openmq", "activemq"])
def test_a_pattern_has_what_is_sent_to_a_new_virtual_topic(
    join: Join, name: str, profile: str
) -> None:
    billing, shipping = join(profile), join(profile)
    billing.subscribe(f"/queue/Consumer.billing.VirtualTopic.{name}.>")
    shipping.subscribe(f"/queue/Consumer.shipping.VirtualTopic.{name}.*")
    join(profile).put(f"/topic/VirtualTopic.{name}.orders", "a chair")
    assert [billing.message().text, shipping.message().text] == ["a chair", "a chair"]
