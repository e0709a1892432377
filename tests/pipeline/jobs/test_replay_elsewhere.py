"""Dead messages are sent to a broker that is not ours: what STOMP can say of them arrives, and what
it cannot is listed first.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.message import BodyType, Headers, Message
from pipeline.connection import Connection
from pipeline.errors import PipelineError
from pipeline.replay.ledger import State, opened
from tests.crash.client import Client
from tests.pipeline.jobs.replays import BODIES, Job, order
from tests.servers import activemq

pytestmark = pytest.mark.brokers

HEADERS = Headers(
    Queue("x"),
    priority=7,
    correlation_id="c",
    type="order",
    properties={"number": "9", "customer": "me"},
)


def test_what_cannot_be_carried_is_listed_and_the_rest_arrives(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    there = Connection({"port": str(activemq().port)})
    job.graveyard.buried(
        [
            order(1),
            order(2, BodyType.MAP),
            Message(HEADERS, "grün".encode(), message_id="ID:made:9", timestamp=1),
        ]
    )
    elsewhere: dict[str, Any] = {"target": there, "to": "queue:revived"}
    with pytest.raises(PipelineError, match="--strict: 1 of 3 messages cannot be sent"):
        job.make(strict=True, **elsewhere)
    with pytest.raises(PipelineError, match="--strict: not everything can be carried: property "):
        job.make(strict=True, where="comment like '%order 1 %'", **elsewhere)
    assert not job.plan.exists()
    capsys.readouterr()
    plan = job.make(**elsewhere)
    said = " ".join(capsys.readouterr().out.split())
    for line in (
        "STOMP has no form for a body of type MAP",
        "property small becomes text: it is of type byte",
        "activemq, 127.0.0.1:",
    ):
        assert line in said
    assert job.run(approve=plan, rate=500.0).sent == 2
    # One is persistent and one is not, which ActiveMQ does not keep in order.
    second, first = sorted(received(there, 2), key=lambda each: each[0]["correlation-id"])
    assert (first[1], first[0]["small"], first[0]["flag"], first[0]["correlation-id"]) == (
        BODIES[BodyType.TEXT],
        "3",
        "true",
        "c1",
    )
    assert (second[1], second[0]["priority"], second[0]["type"], second[0]["number"]) == (
        "grün".encode(),
        "7",
        "order",
        "9",
    )
    assert (first[0]["amq-msg-type"], second[0]["amq-msg-type"]) == ("text", "text")


def test_what_an_interrupted_replay_may_have_sent_is_not_sent_without_being_told_to(
    job: Job,
) -> None:
    there = Connection({"port": str(activemq().port)})
    job.graveyard.buried([order(1), order(2)])
    plan = job.make(target=there, to="queue:revived")
    row = json.loads(plan.read_text().splitlines()[1])
    with opened(job.ledger, "x") as ledger:
        ledger.append(State.INTENDED, 1, "killed", [row])
    with pytest.raises(
        PipelineError, match=f"it is not known whether 1 message, the first {row['message_id']}, "
    ):
        job.run(approve=plan)
    done = job.run(approve=plan, in_doubt="skip")
    assert (done.sent, done.doubtful) == (1, 1)
    assert job.run(approve=plan, in_doubt="send").sent == 1
    assert sorted(headers["correlation-id"] for headers, _ in received(there, 2)) == ["c1", "c2"]


def received(there: Connection, count: int) -> list[tuple[dict[str, str], bytes]]:
    with Client(int(there.options["port"])) as client:
        found = client.ask(
            "SUBSCRIBE", {"destination": "/queue/revived", "id": "1", "ack": "client"}
        )
        while len(found) < count:
            found.append(client.message())
        client.ask("ACK", {"id": found[-1].headers["ack"]})
    return [(frame.headers, frame.body) for frame in found]
