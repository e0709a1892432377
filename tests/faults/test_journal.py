"""What the journal tells of the links of a real gateway, also when it is killed: read back and
compared with what became of each message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.messaging.dead import BridgeDeadReason
from tests.faults.linked_gateway import KINDS, LinkedGateway, linked_gateway
from tests.servers import ActiveMQ, started

pytestmark = pytest.mark.brokers

COUNT = 40
MOVED = ["received", "sent", "arrived", "settled"]


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGateway]:
    made = linked_gateway(tmp_path)
    with made.gateway:
        yield made


def test_each_message_has_its_steps_on_links_of_every_kind(linked: LinkedGateway) -> None:
    ordinary = [f"{number}" for number in range(COUNT)]
    odd = [f"{KINDS[number % 4]} {number}" for number in range(COUNT)]
    for name in linked.links:
        linked.send(name, odd if name.startswith("odd") else ordinary, kind="x")
    for name in linked.links:
        linked.until_acknowledged(name, COUNT)
    linked.gateway.terminate()
    for name in ("plain", "once", "jms", "stomp"):
        courses = linked.transfers(name)
        assert [[event.step for event in course] for course in courses] == [MOVED] * COUNT, name
        for course in courses:
            received, sent, arrived = course[:3]
            ids = arrived.line.get("target_ids")
            # A STOMP broker does not say which id it gives a message.
            assert (
                (ids is None)
                if name == "stomp"
                else (ids and ids[arrived.place] not in ("", received.id))
            ), name
            assert (received.line["destination"], received.line["provider"]) == (
                f"queue:{name}.in",
                "here",
            )
            assert (sent.line["destination"], arrived.line["destination"]) == (
                f"queue:{name}.out",
                f"queue:{name}.out",
            )
            assert sent.line["provider"] == (name if name in ("jms", "stomp") else "here")
            for field in ("bodies_hash", "headers_hash"):
                assert received.line[field][received.place] == sent.line[field][sent.place]
    quarter = COUNT // 4
    moved = ("received", "transformed", *MOVED[1:])
    for name in ("odd", "oddonce"):
        courses = linked.transfers(name)
        assert Counter(tuple(event.step for event in course) for course in courses) == {
            moved: 2 * quarter,
            ("received", "transformed", "not transferred", "settled"): quarter,
            ("received", "buried", "settled"): quarter,
        }
        buried = [event for course in courses for event in course if event.step == "buried"]
        assert {event.line["reason"] for event in buried} == {
            BridgeDeadReason.TRANSFORM_FAILURE.value
        }
        changed = [
            course
            for course in courses
            if (by := {event.step: event for event in course}).get("sent")
            and by["sent"].line["bodies_hash"][by["sent"].place]
            != by["received"].line["bodies_hash"][by["received"].place]
        ]
        assert len(changed) == quarter


def test_what_was_moved_is_in_the_journal_whenever_the_gateway_is_killed(
    linked: LinkedGateway,
) -> None:
    names, sent = ("plain", "once"), 0
    for round in range(3):
        for name in names:
            linked.send(name, [f"{round}-{number}" for number in range(COUNT)])
        sent += COUNT
        linked.gateway.until_link(
            "plain", lambda told: told["counters"]["acknowledged"] > COUNT // 3, "some are moved"
        )
        linked.gateway.restart(crash=True)
    for name in names:
        linked.until_at_rest(name)
    arrived = {name: linked.everything(name) for name in names}
    linked.gateway.terminate()
    for name in names:
        assert len(set(arrived[name])) == sent
        steps: dict[str, Counter[str]] = {}
        for course in linked.transfers(name):
            steps.setdefault(course[0].id, Counter()).update(event.step for event in course)
        # The journal has each message as received and sent. It need not have each copy: lines of the
        # last moment before a kill may be lost, and their messages, not yet acknowledged, come again.
        assert len(steps) == sent
        assert all(counted["received"] and counted["sent"] for counted in steps.values())
        assert all(counted["settled"] <= 1 for counted in steps.values())
    assert len(arrived["once"]) == sent


def test_a_target_that_is_killed_has_its_messages_sent_again(linked: LinkedGateway) -> None:
    server = started(ActiveMQ)
    names = ("jms", "stomp")
    for name in names:
        linked.send(name, [str(number) for number in range(COUNT)])
        linked.until_acknowledged(name, COUNT)
    server.kill()
    for name in names:
        linked.send(name, [f"again {number}" for number in range(COUNT)])
        linked.gateway.until_link(name, lambda told: told["state"] == "RETRYING", "it has noticed")
    server.start()
    for name in names:
        linked.until_acknowledged(name, 2 * COUNT)
    linked.gateway.terminate()
    for name in names:
        by_message: dict[str, list[list[str]]] = {}
        for course in linked.transfers(name):
            by_message.setdefault(course[0].id, []).append([event.step for event in course])
        assert len(by_message) == 2 * COUNT
        for courses in by_message.values():
            assert courses[-1][-2:] == ["arrived", "settled"]
            assert sum("settled" in course for course in courses) == 1
