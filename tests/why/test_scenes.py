"""A scene for each cause makes it happen, and the answer names it."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from tests.conformance.client import Client
from tests.why.mute_peer import MutePeer
from tests.why.scenes import Scene, name, parsed, until


def texts(client: Client, count: int) -> list[str]:
    return [message.text for message in client.messages(count)]


# --- no consumer takes


def test_no_consumer(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1", "2", "3")
    cause = scene.queue(queue, "NO_CONSUMER")
    assert cause["figures"]["waiting"] == 3
    assert cause["figures"]["oldest_ms"] > 0
    assert "has no consumer: 3 messages wait" in cause["sentence"]
    told = scene.run(f"imqcmd why dst -t q -n {queue}")
    assert "1  NO_CONSUMER\n" in told
    assert f"imqcmd purge dst -t q -n {queue}\n" in told
    scene.run(cause["command"])
    assert scene.queue(queue, "NOTHING_WAITS")


def test_a_selector_that_matches_nothing(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", *"abcde", colour="blue", size="9")
    scene.put(f"/queue/{queue}", *"fg", colour="red", size="1")
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}", selector="colour = 'red' AND size > 3")
        cause = scene.queue(queue, "SELECTOR")
    assert cause["figures"]["looked_at"] == 7
    assert cause["figures"]["term"] == "colour = 'red'"
    assert (cause["figures"]["failed"], cause["figures"]["failed_alone"]) == (5, 5)
    assert "colour is 'blue' on 5" in cause["sentence"]


def test_a_selector_with_a_name_in_other_letters(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", *"abc", Colour="red")
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}", selector="colour = 'red'")
        cause = scene.queue(queue, "SELECTOR")
    assert "colour is absent from 3, which have 'Colour'" in cause["sentence"]


def test_consumers_without_credit(scene: Scene) -> None:
    queue = name()
    with scene.client(client_id=f"holds-{queue}") as client:
        client.subscribe(f"/queue/{queue}", ack="client", prefetch_count="4")
        scene.put(f"/queue/{queue}", *map(str, range(10)))
        cause = scene.queue(queue, "NO_CREDIT")
        number = scene.connection(f"holds-{queue}")
        assert cause["figures"] == {
            "waiting": 6,
            "consumers": 1,
            "of_these": 1,
            "unacknowledged": 4,
            "connection": number,
        }
        assert cause["since_ms"] > 0
        assert f"connection {number} of user 'guest'" in cause["sentence"]
        assert scene.cause("NO_CREDIT", "connection", id=number)["figures"]["waiting"] == 6
        scene.run(cause["command"])
    assert scene.queue(queue, "NO_CONSUMER")["figures"]["waiting"] == 10


def test_prefetch_hoards(scene: Scene) -> None:
    queue = name()
    with scene.client() as hoards, scene.client() as starves:
        hoards.subscribe(f"/queue/{queue}", ack="client")
        scene.put(f"/queue/{queue}", *map(str, range(20)))
        hoards.messages(20)
        starves.subscribe(f"/queue/{queue}", ack="client")
        cause = scene.queue(queue, "PREFETCH")
    assert (cause["figures"]["idle"], cause["figures"]["unacknowledged"]) == (1, 20)


def test_another_consumer_is_exclusive(scene: Scene) -> None:
    queue = name()
    with scene.client(client_id=f"has-{queue}") as has, scene.client() as waits:
        has.subscribe(
            f"/queue/{queue}", ack="client", prefetch_count="2", exclusive_consumer="true"
        )
        waits.subscribe(f"/queue/{queue}", ack="client")
        scene.put(f"/queue/{queue}", *"abcde")
        cause = scene.queue(queue, "EXCLUSIVE_CONSUMER")
        number = scene.connection(f"has-{queue}")
        assert cause["figures"] == {
            "waiting": 3,
            "consumers": 2,
            "of_these": 1,
            "unacknowledged": 2,
            "connection": number,
        }
        assert "is exclusive and has queue" in cause["sentence"]
        assert "so 1 other consumer gets nothing while it is there" in cause["sentence"]
        scene.run(cause["command"])
        assert len(waits.messages(5)) == 5


def test_an_exclusive_consumer_has_left_and_not_settled(scene: Scene) -> None:
    queue = name()
    with scene.client() as leaves, scene.client(client_id=f"next-{queue}") as waits:
        leaves.subscribe(f"/queue/{queue}", id="x", ack="client", exclusive_consumer="true")
        scene.put(f"/queue/{queue}", "1")
        leaves.messages(1)
        leaves.ask("UNSUBSCRIBE", id="x")
        waits.subscribe(f"/queue/{queue}", ack="client")
        scene.put(f"/queue/{queue}", "2")
        cause = scene.queue(queue, "EXCLUSIVE_CONSUMER")
        assert "must first settle or give back 1 message" in cause["sentence"]
        number = scene.connection(f"next-{queue}")
        assert scene.cause("EXCLUSIVE_CONSUMER", "connection", id=number)["figures"]["waiting"] == 1


def test_the_consumer_of_a_group_gives_it_up(scene: Scene) -> None:
    queue = name()
    with scene.client() as has, scene.client() as late:
        has.subscribe(f"/queue/{queue}", ack="client")
        for group in ("g1", "g2"):
            scene.put(f"/queue/{queue}", "a", JMSXGroupID=group)
        has.messages(2)
        late.subscribe(f"/queue/{queue}", ack="client")
        for group in ("g1", "g2"):
            scene.put(f"/queue/{queue}", "b", JMSXGroupID=group)
        cause = scene.queue(queue, "MESSAGE_GROUP")
        assert "which gives them up to one that came later" in cause["sentence"]
        assert (cause["figures"]["groups"], cause["figures"]["waiting"]) == (1, 1)


def test_the_consumer_of_a_group_takes_no_more(scene: Scene) -> None:
    queue = name()
    with scene.client(client_id=f"group-{queue}") as has, scene.client() as idle:
        has.subscribe(f"/queue/{queue}", ack="client", prefetch_count="2")
        scene.put(f"/queue/{queue}", *"abcd", JMSXGroupID="g1")
        has.messages(2)
        idle.subscribe(f"/queue/{queue}", ack="client")
        cause = scene.queue(queue, "MESSAGE_GROUP")
        number = scene.connection(f"group-{queue}")
        assert cause["figures"] == {
            "waiting": 2,
            "looked_at": 2,
            "of_these": 2,
            "groups": 1,
            "unacknowledged": 2,
            "connection": number,
        }
        assert "2 of the 2 messages looked at" in cause["sentence"]
        assert "1 group (JMSXGroupID 'g1')" in cause["sentence"]
        scene.run(cause["command"])
        assert len(idle.messages(4)) == 4


def test_all_is_delivered_and_not_acknowledged(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.hold(f"/queue/{queue}", "1", "2", ack="client")
        cause = scene.queue(queue, "UNACKNOWLEDGED")
        assert cause["figures"]["unacknowledged"] == 2


def test_a_client_that_does_not_read(scene: Scene) -> None:
    queue = name()
    with scene.client() as client, scene.client() as sender:
        client.subscribe(f"/queue/{queue}")
        body = "x" * 1_000_000
        for _ in range(20):
            sender.send("SEND", {"destination": f"/queue/{queue}"}, body)
        cause = scene.queue(queue, "READER_CHOKED")
    assert cause["figures"]["waiting"] > 0
    scene.run(f"imqcmd purge dst -t q -n {queue}")


def test_a_transacted_subscription_outside_of_a_transaction(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.send("BEGIN", transaction="t")
        client.subscribe(f"/queue/{queue}", ack="client", transaction="t")
        client.ask("COMMIT", transaction="t")
        scene.put(f"/queue/{queue}", "1")
        cause = scene.queue(queue, "CONSUMER_STOPPED")
    assert "BEGIN and COMMIT" in cause["sentence"]


# --- transactions


def test_sent_in_an_open_transaction(scene: Scene) -> None:
    queue = name()
    with scene.client(client_id=f"sends-{queue}") as client:
        client.send("BEGIN", transaction="t")
        client.ask("SEND", {"destination": f"/queue/{queue}"}, "1", transaction="t")
        cause = scene.queue(queue, "OPEN_TRANSACTION")
        assert (cause["figures"]["sent"], cause["figures"]["connections"]) == (1, 1)
        number = scene.connection(f"sends-{queue}")
        assert scene.cause("OPEN_TRANSACTION", "connection", id=number)["figures"]["sent"] == 1


def test_acknowledged_in_an_open_transaction(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.send("BEGIN", transaction="t")
        client.subscribe(f"/queue/{queue}", ack="client-individual", transaction="t")
        scene.put(f"/queue/{queue}", "1")
        message = client.message()
        client.ack(message, transaction="t", receipt="r")
        client.expect("RECEIPT")
        cause = scene.message(message["message-id"], "OPEN_TRANSACTION")
    assert "acknowledged in an open transaction" in cause["sentence"]


# --- pauses, deaths


def test_a_redelivery_pause(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o initialRedeliveryDelay=60000")
    with scene.client() as client:
        message = client.hold(f"/queue/{queue}", "1", ack="client-individual")[0]
        client.nack(message)
        assert scene.queue(queue, "REDELIVERY_PAUSE")["figures"]["pausing"] == 1
        assert scene.message(message["message-id"], "REDELIVERY_PAUSE")


def test_dead_with_the_reason_and_where_it_is(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maximumRedeliveries=0")
    with scene.client() as client:
        message = client.hold(f"/queue/{queue}", "1", ack="client-individual")[0]
        client.nack(message)
        cause = scene.queue(queue, "DEAD")
        assert cause["figures"]["dead"] == 1
        assert "refused by its consumer" in cause["sentence"]
        assert cause["command"].startswith("imqcmd replay msg -t q -n mq.sys.dmq -selector ")
        client.disconnect()
    cause = scene.message(message["message-id"], "DEAD")
    assert "UNDELIVERABLE" in cause["sentence"]
    assert "queue 'mq.sys.dmq'" in cause["sentence"]
    # Not to purge what is dead.
    idle = scene.queue("mq.sys.dmq", "NO_CONSUMER")
    assert idle["command"] == "imqcmd list msg -t q -n mq.sys.dmq"
    look = cause["advice"].partition("see all of it: ")[2].removesuffix(":")
    assert "refused by its consumer" in scene.run(look)
    assert "Done: 1 of 1 messages" in scene.run(cause["command"])
    assert scene.message(message["message-id"], "NO_CONSUMER")["figures"]["waiting"] == 1


def test_dead_in_a_queue_of_its_own(scene: Scene) -> None:
    queue = name()
    scene.run(
        f"imqcmd create dst -t q -n {queue} -o maximumRedeliveries=0 -o deadLetterQueue=ActiveMQ.DLQ.Queue."
    )
    own = f"ActiveMQ.DLQ.Queue.{queue}"
    with scene.client() as client:
        message = client.hold(f"/queue/{queue}", "1", ack="client-individual")[0]
        client.nack(message)
        cause = scene.queue(queue, "DEAD")
        assert f"they are in {own}" in cause["sentence"]
        look = cause["advice"].partition("(")[2].partition("), mend")[0]
        assert message["message-id"] in scene.run(look)
        assert cause["command"].startswith(f"imqcmd replay msg -t q -n {own} -selector ")
        cause = scene.message(message["message-id"], "DEAD")
    assert f"queue '{own}'" in cause["sentence"]
    assert cause["command"] == f"imqcmd replay msg -t q -n {own} -msgID {message['message-id']}"
    assert scene.queue(own, "NO_CONSUMER")["command"] == f"imqcmd list msg -t q -n {own}"
    assert "Is a Dead Message Queue" in scene.run(f"imqcmd query dst -t q -n {own}")
    findings = scene.admin.get("/v1/doctor")["findings"]
    assert any(f"{own} has messages and no consumer" in each["text"] for each in findings)
    # The journal knows it when it is there no more.
    scene.run(f"imqcmd purge dst -t q -n {own}")
    told = scene.message(message["message-id"], "DEAD")
    assert "The journal says" in told["sentence"]
    assert told["command"] == f"imqcmd list msg -t q -n {own}"
    with scene.client() as client:
        client.nack(client.hold(f"/queue/{queue}", "2", ack="client-individual")[0])
    scene.queue(own, "NO_CONSUMER")
    scene.run(f"imqcmd replay msg -t q -n {own} -limit 1")
    assert scene.id_of(queue)


def test_expired(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1", "2", expires="1500")
    id = scene.id_of(queue)
    assert scene.queue(queue, "EXPIRED")["figures"]["expired"] == 2
    # It may have expired, and not been looked for yet.
    until(lambda: "in queue 'mq.sys.dmq' now" in scene.message(id, "EXPIRED")["sentence"])


# --- limits


def test_flow_control(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maxNumMsgs=2 -o limitBehavior=FLOW_CONTROL")
    with scene.client(client_id=f"waits-{queue}") as client:
        for body in "12":
            client.send("SEND", {"destination": f"/queue/{queue}"}, body)
        cause = scene.queue(queue, "FLOW_CONTROL")
        assert cause["figures"] == {"limit": 2, "there": 2, "senders": 1}
        number = scene.connection(f"waits-{queue}")
        blocked = scene.cause("FLOW_CONTROL", "connection", id=number)
        assert queue in blocked["sentence"]
        assert blocked["command"] == f"imqcmd why dst -t q -n {queue}"
        scene.run(cause["command"])
        client.sync()


def test_a_user_that_sends_faster_than_it_may(scene: Scene) -> None:
    queue = name()
    settings = scene.gateway.directory / "etc" / "gateway.properties"
    before = settings.read_text()
    settings.write_text(f"{before}\nimq.bridge.stomp.user.guest.messagesPerSecond=5\n")
    try:
        scene.run("imqcmd reload svc")
        with scene.client(client_id=f"fast-{queue}") as client:
            for body in range(500):
                client.send("SEND", {"destination": f"/queue/{queue}"}, str(body))
            number = scene.connection(f"fast-{queue}")
            cause = scene.cause("USER_RATE", "connection", id=number)
            assert cause["sentence"].startswith(
                "User 'guest' may send 5 messages a second, and has sent more: nothing is read"
            )
            assert 0 < cause["figures"]["wait_ms"] <= 1000
            settings.write_text(before)
            scene.run(cause["command"])
            client.sync()
        assert scene.queue(queue, "NO_CONSUMER")["figures"]["waiting"] == 500
    finally:
        settings.write_text(before)
        scene.run("imqcmd reload svc")


def test_a_user_that_gets_as_much_as_it_may(scene: Scene) -> None:
    queue = name()
    settings = scene.gateway.directory / "etc" / "gateway.properties"
    before = settings.read_text()
    settings.write_text(f"{before}\nimq.bridge.stomp.user.guest.deliveredMessagesPerSecond=20\n")
    try:
        scene.run("imqcmd reload svc")
        scene.put(f"/queue/{queue}", *map(str, range(100)))
        with scene.client(client_id=f"slow-{queue}") as client:
            began = time.monotonic()
            client.subscribe(f"/queue/{queue}")
            assert texts(client, 20) == [*map(str, range(20))]
            number = scene.connection(f"slow-{queue}")
            cause = scene.cause("USER_RATE", "connection", id=number)
            assert cause["sentence"].startswith(
                "User 'guest' may get 20 messages a second, and has got more: nothing is delivered"
            )
            waiting = scene.queue(queue, "USER_RATE")
            assert waiting["command"] == f"imqcmd why cxn -id {number}"
            assert texts(client, 40) == [*map(str, range(20, 60))]
            # A second's worth at once, and once more on account.
            assert time.monotonic() - began >= 1.0
            settings.write_text(before)
            scene.run(cause["command"])
            assert texts(client, 40) == [*map(str, range(60, 100))]
    finally:
        settings.write_text(before)
        scene.run("imqcmd reload svc")


def test_a_limit_that_refuses(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maxNumMsgs=1 -o limitBehavior=REJECT_NEWEST")
    scene.put(f"/queue/{queue}", "1")
    with scene.client() as client:
        client.send("SEND", {"destination": f"/queue/{queue}"}, "2")
        client.error("maxNumMsgs")
    causes = [
        each
        for each in scene.ask("destination", type="q", name=queue)["causes"]
        if each["kind"] == "LIMIT_REACHED"
    ]
    assert "has 1 of at most 1 (maxNumMsgs)" in " ".join([each["sentence"] for each in causes])
    assert "User 'guest' was refused" in " ".join([each["sentence"] for each in causes])


def test_a_message_that_is_too_large(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maxBytesPerMsg=100")
    with scene.client() as client:
        client.send("SEND", {"destination": f"/queue/{queue}"}, "x" * 200)
        client.error()
    assert scene.queue(queue, "TOO_LARGE")["figures"]["count"] == 1


def test_consumers_beyond_the_limit(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maxNumActiveConsumers=1")
    with scene.client() as first, scene.client() as second:
        first.subscribe(f"/queue/{queue}")
        second.send("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "2"})
        second.error()
        cause = scene.queue(queue, "MAX_CONSUMERS")
        scene.run(cause["command"])


def test_an_access_rule(scene: Scene) -> None:
    def refused() -> bool:
        with scene.client() as client:
            client.send("SUBSCRIBE", {"destination": "/queue/secret", "id": "1"}, receipt="r")
            return client.frame().command == "ERROR"

    until(refused)
    cause = scene.queue("secret", "ACCESS_DENIED")
    assert "'guest'" in cause["sentence"]
    assert "accesscontrol.properties" in cause["advice"]


# --- other names


@pytest.mark.parametrize(
    ("sent", "asked", "meant"),
    [
        ("Orders.{}", "orders.{}", ""),
        ("queue/stock.{}", "stock.{}", "names the queue 'queue/NAME'"),
        # So do logs and balances write it.
        ("bills.{}", "queue:bills.{}", ""),
    ],
)
def test_sent_to_another_name(scene: Scene, sent: str, asked: str, meant: str) -> None:
    mine = uuid.uuid4().hex[:8]
    scene.put(f"/queue/{sent.format(mine)}", "1")
    cause = scene.queue(asked.format(mine), "OTHER_NAME")
    assert f"queue '{sent.format(mine)}' with 1 message" in cause["sentence"]
    assert meant in cause["sentence"]
    assert cause["command"].startswith("imqcmd why dst -t q -n ")
    with scene.client() as client:
        client.subscribe(f"/queue/{asked.format(mine)}")
        assert "is empty" in scene.queue(asked.format(mine), "OTHER_NAME")["sentence"]


def test_a_temporary_queue_of_a_client_that_left(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.put(f"/queue/{queue}", "question", reply_to="/temp-queue/answers")
        with scene.client() as server:
            server.subscribe(f"/queue/{queue}")
            answers = server.message()["reply-to"]
    gone = answers.removeprefix("/temp-queue/")
    assert "is gone" in scene.queue(gone, "TEMPORARY_GONE")["sentence"]


def test_there_is_no_such_queue(scene: Scene) -> None:
    assert scene.queue(uuid.uuid4().hex[:16] + "!", "NO_DESTINATION")["command"].startswith(
        "imqcmd create dst"
    )


# --- topics


def test_a_topic_without_subscription(scene: Scene) -> None:
    topic = name()
    scene.put(f"/topic/{topic}", "1", "2")
    assert scene.topic(topic, "NO_SUBSCRIPTION")["figures"]["unheard"] == 2
    with scene.client() as client:
        client.subscribe(f"/topic/{topic}")
        assert "before those of now" in scene.topic(topic, "NO_SUBSCRIPTION")["sentence"]


def test_a_selector_of_a_subscription(scene: Scene) -> None:
    topic = name()
    with scene.client() as client:
        client.subscribe(f"/topic/{topic}", selector="colour = 'red'")
        scene.put(f"/topic/{topic}", "1", "2", colour="blue")
        cause = scene.topic(topic, "SELECTOR")
    assert cause["figures"] == {"refused": 2, "term": "colour = 'red'"}
    assert "colour is 'blue'" in cause["sentence"]


def test_no_local(scene: Scene) -> None:
    topic = name()
    with scene.client() as client:
        client.subscribe(f"/topic/{topic}", no_local="true")
        client.put(f"/topic/{topic}", "1")
        assert scene.topic(topic, "NO_LOCAL")["figures"]["left_out"] == 1


def test_a_durable_subscription_whose_client_is_away(scene: Scene) -> None:
    topic = name()
    with scene.client(client_id=f"away-{topic}") as client:
        client.subscribe(f"/topic/{topic}", durable_subscriber_name="news")
        client.disconnect()
    scene.put(f"/topic/{topic}", "1")
    cause = scene.topic(topic, "DURABLE_INACTIVE")
    assert cause["figures"]["waiting"] == 1
    scene.run(cause["command"])


# --- one message


def test_behind_others(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1", "2")
    scene.put(f"/queue/{queue}", "urgent", priority="9")
    id = scene.id_of(queue, 2)
    cause = scene.message(id, "BEHIND_OTHERS")
    assert cause["figures"] == {"ahead": 2, "higher_priority": 1}
    assert "NO_CONSUMER" in [each["kind"] for each in scene.ask("message", id=id)["causes"]]


def test_what_others_of_its_queue_wait_for_is_not_told_of_it(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1")
    scene.put(f"/queue/{queue}", "2", AMQ_SCHEDULED_DELAY="600000")
    assert scene.queue(queue, "SCHEDULED")["figures"] == {"scheduled": 1}
    found = [each["kind"] for each in scene.ask("message", id=scene.id_of(queue))["causes"]]
    assert "NO_CONSUMER" in found
    assert "SCHEDULED" not in found
    scene.run(f"imqcmd destroy dst -t q -n {queue}")


def test_acknowledged_and_by_whom(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        message = client.hold(f"/queue/{queue}", "1", ack="client")[0]
        client.ack(message, receipt="r")
        client.expect("RECEIPT")
        cause = scene.message(message["message-id"], "ACKNOWLEDGED")
    assert "user 'guest' acknowledged it" in cause["sentence"]


def test_moved_on_to_another_broker_under_another_id(scene: Scene) -> None:
    with scene.client() as client:
        client.subscribe("/queue/out", ack="client")
        scene.put("/queue/mover.in", "1")
        arrived = client.message()["message-id"]
        number = int(arrived.rpartition("-")[2])
        source = f"{arrived.rpartition('-')[0]}-{number - 1}"
        cause = scene.message(source, "MOVED_ON")
        assert f"it got the id {arrived} there" in cause["sentence"]
        taken = scene.message(source, "ACKNOWLEDGED")
        assert (
            "delivered to link 'mover' of bridge 'moves', which acknowledged" in taken["sentence"]
        )
        client.disconnect()
    scene.run("imqcmd purge dst -t q -n out")


def test_copies_of_a_virtual_topic(scene: Scene) -> None:
    topic = f"VirtualTopic.{uuid.uuid4().hex[:10]}"
    queue = f"Consumer.a.{topic}"
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}")
    scene.put(f"/topic/{topic}", "1")
    cause = scene.topic(topic, "COPIED")
    assert cause["figures"] == {"queues": 1, "messages": 1}
    assert f"'{queue}' (1)" in cause["sentence"]
    assert scene.queue(queue, "COPIED")["figures"] == {"topic": topic}
    copy = scene.id_of(queue)
    assert scene.message(copy, "COPIED")["figures"] == {"topic": topic}
    number = int(copy.rpartition("-")[2])
    original = f"{copy.rpartition('-')[0]}-{number - 1}"
    cause = scene.message(original, "COPIED")
    assert cause["figures"] == {"queue": queue, "message_id": copy}
    assert scene.run(f"imqcmd why msg -id {original}").count("NO_SUBSCRIPTION") == 0


def test_a_queue_of_a_virtual_topic_that_holds_its_senders(scene: Scene) -> None:
    topic = f"VirtualTopic.{name()}"
    queue = f"Consumer.a.{topic}"
    limit = "-o maxNumMsgs=1 -o limitBehavior=FLOW_CONTROL"
    scene.run(f"imqcmd create dst -t q -n {queue} {limit}")
    with scene.client() as client:
        client.send("SEND", {"destination": f"/topic/{topic}"}, "1")
        cause = scene.topic(topic, "FLOW_CONTROL")
        assert queue in cause["sentence"]
        scene.run(cause["command"])
        client.sync()
        scene.run(f"imqcmd update dst -t q -n {queue} -o maxNumMsgs=9")
        scene.run(f"imqcmd pause dst -t q -n {queue} -pst PRODUCERS")
        client.send("SEND", {"destination": f"/topic/{topic}"}, "2")
        cause = scene.topic(topic, "DESTINATION_PAUSED")
        assert queue in cause["sentence"]
        scene.run(cause["command"])
        client.sync()
    # Who only consumes holds no sender.
    scene.run(f"imqcmd pause dst -t q -n {queue} -pst CONSUMERS")
    causes = scene.ask("destination", type="t", name=topic)["causes"]
    assert [each["kind"] for each in causes] == ["COPIED"]


def test_queues_of_an_address(scene: Scene) -> None:
    address = name()
    for queue in "ab":
        scene.run(f"imqcmd create dst -t q -n {address}.{queue} -o address={address}")
    scene.put(f"/queue/{address}", "1", "2", "3")
    cause = scene.queue(address, "TAKES_TURNS")
    assert cause["figures"] == {"address": address, "queues": 2, "messages": 3}
    assert f"'{address}.a' (2), '{address}.b' (1)" in cause["sentence"]
    assert scene.queue(f"{address}.b", "TAKES_TURNS")["figures"]["messages"] == 3
    lines = scene.run(f"imqcmd query dst -t q -n {address}.b").splitlines()
    assert [line.split() for line in lines if "Address" in line] == [["Address", address]]


def test_a_topic_message_that_came_too_early(scene: Scene) -> None:
    topic = name()
    with scene.client() as client:
        client.put(f"/topic/{topic}", "1")
        after = client.hold(f"/queue/{topic}", "2")[0]["message-id"]
    number = int(after.rpartition("-")[2])
    early = f"{after.rpartition('-')[0]}-{number - 1}"
    assert (
        "when the topic had no subscription" in scene.message(early, "NO_SUBSCRIPTION")["sentence"]
    )


def test_a_duplicate_id(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1", "again", "again", **{"_AMQ_DUPL_ID": f"id-{queue}"})
    assert scene.queue(queue, "DUPLICATE_ID")["figures"]["dropped"] == 2
    cause = scene.message(f"id-{queue}", "DUPLICATE_ID")
    assert cause["figures"]["original"] == scene.id_of(queue)


def test_headers_that_mean_nothing_here(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}", **{"activemq.retroactive": "true", "x-priority": "3"})
        cause = scene.queue(queue, "HEADER_UNUSED")
    assert "'activemq.retroactive', 'x-priority'" in cause["sentence"]
    scene.put(f"/queue/{queue}", "1", "2", **{"x-delay": "60000", "_AMQ_LVQ_NAME": "v"})
    with scene.client() as client:
        # Neither is delayed, and neither takes the place of the other.
        client.subscribe(f"/queue/{queue}", ack="client")
        held = client.messages(2)
        causes = scene.ask("message", id=held[0]["message-id"])["causes"]
    advice = [each["advice"] for each in causes if each["kind"] == "HEADER_UNUSED"]
    assert len(advice) == 2
    assert "AMQ_SCHEDULED_DELAY" in " ".join(advice)


@pytest.mark.parametrize("header", ["JMSXGroupID", "_AMQ_GROUP_ID"])
def test_headers_of_groups_mean_something_here(scene: Scene, header: str) -> None:
    queue = name()
    with scene.client() as has:
        has.subscribe(f"/queue/{queue}", ack="client", prefetch_count="1")
        scene.put(f"/queue/{queue}", "1", "2", **{header: "g"})
        has.messages(1)
        assert scene.queue(queue, "MESSAGE_GROUP")["figures"]["groups"] == 1
        causes = scene.ask("message", id=scene.id_of(queue))["causes"]
    assert "HEADER_UNUSED" not in [each["kind"] for each in causes]


def test_the_header_of_a_time_means_something_here(scene: Scene) -> None:
    queue = name()
    due = str(int(time.time() * 1000) + 3_600_000)
    scene.put(f"/queue/{queue}", "1", **{"_AMQ_SCHED_DELIVERY": due})
    [scheduled] = scene.admin.get("/v1/scheduled", type="queue", name=queue)["scheduled"]
    kinds = [each["kind"] for each in scene.ask("message", id=scheduled["message_id"])["causes"]]
    assert "SCHEDULED" in kinds
    assert "HEADER_UNUSED" not in kinds


def test_ids_that_say_where_to_ask(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1")
    id = scene.id_of(queue)
    prefix = id.rpartition("-")[0]
    assert scene.message(f"{prefix}-999999999", "NOT_SENT_YET")
    assert scene.message("ID-another-1", "OTHER_BROKER")
    assert scene.message(f"{prefix}-9{'0' * 20}", "HEADER_UNUSED")
    assert scene.message("my own id", "HEADER_UNUSED")


# --- links and services


@pytest.mark.parametrize(
    ("link", "kind", "said"),
    [
        ("off", "LINK_DISABLED", "disabled in the file"),
        ("away", "LINK_WAITING", "tries again in"),
        ("wrong", "LINK_FAILED", "has given up"),
        ("idle", "NOTHING_WAITS", "nothing waits at its source"),
    ],
)
def test_a_link_that_does_not_move(scene: Scene, link: str, kind: str, said: str) -> None:
    assert said in scene.link(link, kind)["sentence"]
    for program in ("imqcmd", "imqbridgemgr"):
        assert said in scene.run(f"{program} why link -bn moves -ln {link}")


@pytest.mark.parametrize(
    ("order", "kind", "back"),
    [("stop", "LINK_STOPPED", "start"), ("pause", "LINK_PAUSED", "resume")],
)
def test_a_queue_whose_link_was_stopped(scene: Scene, order: str, kind: str, back: str) -> None:
    scene.run(f"imqbridgemgr {order} link -bn moves -ln mover")
    scene.put("/queue/mover.in", "1")
    cause = scene.queue("mover.in", kind)
    assert "it takes messages from queue 'mover.in'" in cause["sentence"]
    assert cause["command"] == f"imqbridgemgr {back} link -bn moves -ln mover"
    assert scene.link("mover", kind)
    scene.run(cause["command"])
    with scene.client() as client:
        client.subscribe("/queue/out")
        client.message()


def test_a_queue_whose_link_waits(scene: Scene) -> None:
    scene.put("/queue/away.in", "1")
    cause = scene.queue("away.in", "LINK_WAITING")
    assert "it takes messages from queue 'away.in'" in cause["sentence"]


def test_a_link_that_is_stalled(scene: Scene) -> None:
    scene.run("imqcmd create dst -t q -n full.out -o maxNumMsgs=1 -o limitBehavior=FLOW_CONTROL")
    scene.put("/queue/full.in", "1", "2", "3")
    cause = scene.link("full", "LINK_STALLED")
    assert "to take what it sends" in cause["sentence"]
    assert scene.link("full", "FLOW_CONTROL")["figures"]["there"] >= 1
    assert scene.queue("full.in", "LINK_STALLED")
    assert " STALLED " in scene.run("imqbridgemgr list link -bn moves")
    assert "link full is STALLED: " in scene.gateway.log
    scene.run("imqcmd update dst -t q -n full.out -o maxNumMsgs=-1")
    until(lambda: "link full: moves messages again" in scene.gateway.log)
    assert scene.link("full", "NOTHING_WAITS")["figures"]["moved"] == 3


def test_a_link_whose_target_lets_it_in_and_answers_nothing(scene: Scene, mute: MutePeer) -> None:
    scene.run("imqbridgemgr pause link -bn moves -ln mute")
    scene.put("/queue/mute.in", "1", "2", "3")
    id = scene.id_of("mute.in")
    scene.run("imqbridgemgr resume link -bn moves -ln mute")
    first = scene.link("mute", "NO_ANSWER")
    assert "3 messages on their way" in first["sentence"]
    cause = scene.link("mute", "LINK_STALLED")
    assert "to take what it sends" in cause["sentence"]
    began = mute.connections
    phases = set()

    def again() -> bool:
        # It is called stalled in each phase, from now on.
        [link] = scene.admin.get("/v1/links/moves/mute")["links"]
        assert link["state"] == "STALLED"
        phases.add(link["connected"])
        [told] = [
            each["sentence"]
            for each in scene.ask("link", bridge="moves", link="mute")["causes"]
            if each["kind"] == "LINK_STALLED"
        ]
        assert "is connected and stalled" in told or "has lost its connection again" in told
        return mute.connections > began and link["connected"]

    until(again)
    assert phases == {True, False}
    # Each line is in the log of the bridge as well.
    [line] = {line for line in scene.gateway.log.splitlines() if "link mute is STALLED" in line}
    assert "3 messages wait" in line
    mute.answer()
    until(lambda: "link mute: moves messages again" in scene.gateway.log)
    assert scene.link("mute", "NOTHING_WAITS")["figures"]["moved"] == 3
    assert "the id that it got there is not known" in scene.message(id, "MOVED_ON")["sentence"]


def test_the_bridge_is_paused(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}")
        scene.run("imqbridgemgr pause bridge -bn stomp")
        client.send("SEND", {"destination": f"/queue/{queue}"}, "1")
        cause = scene.queue(queue, "SERVICE_PAUSED")
        assert "PAUSED" in cause["sentence"]
        scene.run(cause["command"])
        client.message()


def test_the_destination_is_paused(scene: Scene) -> None:
    queue = name()
    with scene.client() as client:
        client.subscribe(f"/queue/{queue}")
        scene.run(f"imqcmd pause dst -t q -n {queue} -pst CONSUMERS")
        client.send("SEND", {"destination": f"/queue/{queue}"}, "1")
        cause = scene.queue(queue, "DESTINATION_PAUSED")
        assert "nothing is delivered; 1 message is there" in cause["sentence"]
        scene.run(cause["command"])
        client.message()


def test_a_listener_is_closed(scene: Scene) -> None:
    scene.run("imqcmd pause svc -n stomp")
    cause = scene.queue("mq.sys.dmq", "LISTENER_CLOSED")
    scene.run(cause["command"])
    with scene.client():
        pass


# --- the questions themselves


def test_hostile_names_stay_in_their_place(scene: Scene) -> None:
    queue = 'a b\'; rm -rf ~ "$(x)" \u202e é'
    scene.put(f"/queue/{queue}", "1")
    cause = scene.queue(queue, "NO_CONSUMER")
    parsed(cause["command"])
    scene.run(cause["command"])
    told = scene.run(f"imqcmd why dst -t q -n {json.dumps(chr(27) + '[31m')}")
    assert "\x1b" not in told


def test_what_is_not_there_is_refused(scene: Scene) -> None:
    assert "there is no connection 999999" in scene.run("imqcmd why cxn -id 999999", code=1)
    assert "there is no link x" in scene.run("imqcmd why link -bn moves -ln x", code=1)
    assert "no bridge nowhere" in scene.run("imqcmd why link -bn nowhere -ln x", code=1)
    assert "expected a whole number" in scene.run("imqcmd why cxn -id x", code=1)


def test_a_connection_without_subscription(scene: Scene) -> None:
    with scene.client(client_id="silent"):
        cause = scene.cause("NO_SUBSCRIPTION", "connection", id=scene.connection("silent"))
    assert "has no subscription" in cause["sentence"]


def test_a_connection_for_which_nothing_waits(scene: Scene) -> None:
    queue = name()
    with scene.client(client_id="idle") as client:
        client.subscribe(f"/queue/{queue}")
        cause = scene.cause("NOTHING_WAITS", "connection", id=scene.connection("idle"))
    assert cause["command"] == f"imqcmd why dst -t q -n {queue}"
