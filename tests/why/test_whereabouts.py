"""Where a message is that is yet to come, or has another number now."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.why.scenes import Scene, name, until


def journey(scene: Scene, id: str) -> dict[str, Any]:
    """What the console shows of a message."""
    found: dict[str, Any] = scene.admin.get("/v1/message/journey", id=id)
    return found


def is_only_in(scene: Scene, id: str, queue: str) -> None:
    """Check that a message waits there, and is said to be nowhere else."""
    answer = scene.ask("message", id=id)
    assert answer["subject"].endswith(f"is not delivered: it is in queue '{queue}'")
    kinds = [each["kind"] for each in answer["causes"]]
    assert "NO_CONSUMER" in kinds
    assert not {"REMOVED", "DEAD", "MOVED_ON"} & {*kinds}
    places = journey(scene, id)["places"]
    assert [(each["queue"], each["state"]) for each in places] == [(queue, "waiting")]


def test_moved_to_another_queue(scene: Scene) -> None:
    queue, other = name(), name()
    scene.put(f"/queue/{queue}", "1")
    id = scene.id_of(queue)
    scene.put(f"/queue/{other}", "0")
    scene.run(f"imqcmd move msg -t q -n {queue} -msgID {id} -to queue:{other}")
    is_only_in(scene, id, other)
    assert scene.message(id, "BEHIND_OTHERS")["figures"]["ahead"] == 1
    with scene.client() as client:
        client.subscribe(f"/queue/{other}", ack="client-individual")
        held = client.messages(2)[1]
        assert held["message-id"] == id
        assert scene.message(id, "UNACKNOWLEDGED")["figures"]["unacknowledged"] == 2
        client.ack(held)
        client.sync()
        # What the journal says of it when it is gone.
        cause = scene.message(id, "MOVED_ON")
        assert cause["figures"] == {"reason": "moved", "destination": f"queue:{other}"}
        assert f"moved it from queue:{queue} to queue:{other}" in cause["sentence"]
        scene.run(cause["command"])
        assert scene.message(id, "ACKNOWLEDGED")
    kinds = [each["kind"] for each in scene.ask("message", id=id)["causes"]]
    assert "REMOVED" not in kinds


def test_purged(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1")
    id = scene.id_of(queue)
    scene.run(f"imqcmd purge dst -t q -n {queue}")
    cause = scene.message(id, "REMOVED")
    assert cause["figures"] == {"reason": "removed"}
    assert f"It was removed from queue:{queue} at " in cause["sentence"]
    assert journey(scene, id)["places"] == []


def test_replaced(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o lastValueKey=_AMQ_LVQ_NAME")
    scene.put(f"/queue/{queue}", "1", _AMQ_LVQ_NAME="a")
    older = scene.id_of(queue)
    scene.put(f"/queue/{queue}", "2", _AMQ_LVQ_NAME="a")
    newer = scene.id_of(queue)
    cause = scene.message(older, "REPLACED")
    assert cause["figures"] == {"message_id": newer}
    assert f"It was replaced in queue:{queue} at " in cause["sentence"]
    assert cause["command"] == f"imqcmd why msg -id {newer}"
    kinds = [each["kind"] for each in scene.ask("message", id=newer)["causes"]]
    assert "HEADER_UNUSED" not in kinds
    cause = scene.queue(queue, "REPLACED")
    assert cause["figures"] == {"replaced": 1}
    told = scene.run(f"imqcmd query dst -t q -n {queue}")
    assert [line.split()[-1] for line in told.splitlines() if "Replaced" in line] == ["1"]
    assert [line.split()[-1] for line in told.splitlines() if "Last Value Key" in line] == [
        "_AMQ_LVQ_NAME"
    ]
    scene.run(cause["command"])
    scene.put(f"/queue/{queue}", "3", _AMQ_LVQ_NAME="a")
    assert scene.id_of(queue) == newer
    assert scene.message(newer, "HEADER_UNUSED")["command"] == ""


def test_a_dead_one_that_was_replayed(scene: Scene) -> None:
    queue = name()
    scene.run(f"imqcmd create dst -t q -n {queue} -o maximumRedeliveries=0")
    with scene.client() as client:
        dead = client.hold(f"/queue/{queue}", "1", ack="client-individual")[0]
        id = dead["message-id"]
        client.nack(dead)
        assert scene.message(id, "DEAD")
        client.disconnect()
    scene.run(f"imqcmd replay msg -t q -n mq.sys.dmq -msgID {id}")
    is_only_in(scene, id, queue)


@pytest.mark.parametrize("topic", [False, True])
def test_scheduled_until_it_is_due(scene: Scene, topic: bool) -> None:
    place = name()
    kind = "topic" if topic else "queue"
    with scene.client() as client:
        client.put(f"/{kind}/{place}", "1", AMQ_SCHEDULED_DELAY="3600000")
    [scheduled] = scene.admin.get("/v1/scheduled", type=kind, name=place)["scheduled"]
    id, job = scheduled["message_id"], scheduled["job_id"]
    cause = scene.message(id, "SCHEDULED")
    assert cause["figures"] == {"due_ms": scheduled["due_ms"], "id": job}
    assert cause["figures"]["due_ms"] > time.time() * 1000 + 3_000_000
    assert f"It is to be delivered to {kind} '{place}' at " in cause["sentence"]
    assert cause["command"] == f"imqcmd destroy scheduled -n {job}"
    [found] = journey(scene, id)["places"]
    assert (found["state"], found["due_ms"]) == ("scheduled", scheduled["due_ms"])
    told = scene.run(f"imqcmd why msg -id {id}")
    assert "1  SCHEDULED\n" in told
    scene.run(cause["command"])
    assert journey(scene, id)["places"] == []


def test_scheduled_and_due_by_now(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1", AMQ_SCHEDULED_DELAY="300")
    [scheduled] = scene.admin.get("/v1/scheduled", type="queue", name=queue)["scheduled"]
    id = scheduled["message_id"]
    until(lambda: scene.admin.get("/v1/messages", name=queue)["messages"])
    is_only_in(scene, id, queue)


def test_an_exchange_is_explained_by_the_topic_that_stands_for_it(scene: Scene) -> None:
    key = name()
    scene.put(f"/topic/{key}", "1")
    # The topic of that key is another matter, and is not said to be near.
    answer = scene.ask("destination", type="t", name=f"/exchange/orders/{key}")
    [cause] = answer["causes"]
    assert cause["kind"] == "NO_DESTINATION"
    assert f"There is no '/exchange/orders/{key}'" in cause["sentence"]
    scene.put(f"/topic/amq.direct.{key}", "1")
    for asked in (f"/exchange/amq.direct/{key}", f"amq.direct.{key}"):
        cause = scene.topic(asked, "NO_SUBSCRIPTION")
        assert f"amq.direct.{key}" in cause["sentence"]


def test_an_id_that_was_never_given_to_a_message_is_not_searched_into_one(scene: Scene) -> None:
    queue = name()
    scene.put(f"/queue/{queue}", "1")
    prefix = scene.id_of(queue).rpartition("-")[0]
    assert journey(scene, f"{prefix}-999999999")["places"] == []
    assert journey(scene, "it's no id")["places"] == []
