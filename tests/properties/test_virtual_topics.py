"""Virtual topics against a model: which queue has which messages."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped

TOPICS = [Topic("VirtualTopic.a"), Topic("VirtualTopic.a.b"), Topic("plain")]
QUEUES = [Queue(f"Consumer.{name}.{topic.name}") for name in ("x", "y") for topic in TOPICS]

_SENT = st.lists(st.sampled_from([*TOPICS, *QUEUES[:2]]), min_size=1, max_size=4)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["exist", "destroy"]), st.sampled_from(QUEUES)),
        st.tuples(st.sampled_from(["send", "commit", "abort"]), _SENT),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(_STEPS)
def test_each_queue_has_what_was_sent_to_its_topic_since_it_exists(
    steps: list[tuple[str, object]],
) -> None:
    with TemporaryDirectory() as folder:
        stepped = Stepped(Path(folder), BrokerOptions(reap_time=0))
        model: dict[Destination, list[str]] = {}
        count = 0
        for what, about in steps:
            if what == "exist":
                assert isinstance(about, Destination)
                session = stepped.session()
                stepped.consume(session, about)
                stepped.close(session)
                model.setdefault(about, [])
            elif what == "destroy":
                assert isinstance(about, Destination)
                physical = stepped.broker.find(about)
                if physical is not None:
                    stepped.remove(physical)
                model.pop(about, None)
            elif what == "restart":
                stepped.restart()
            else:
                assert isinstance(about, list)
                # What is sent in one call finds the queues that it makes itself.
                for queue in QUEUES:
                    if queue in about:
                        model.setdefault(queue, [])
                session = stepped.session(Mode.CLIENT if what == "send" else Mode.TRANSACTED)
                messages = [text(to, str(count + at)) for at, to in enumerate(about)]
                stepped.send(messages, session)
                if what == "commit":
                    assert stepped.commit(session).well
                stepped.close(session)
                for message in messages if what != "abort" else ():
                    _sent(model, message.headers.destination, message.text)
                count += len(messages)
        stepped.restart()
        assert {queue: _waiting(stepped, queue) for queue in model} == model


def _sent(model: dict[Destination, list[str]], to: Destination, body: str) -> None:
    if to in QUEUES:
        model[to].append(body)
    elif to.name.startswith("VirtualTopic."):
        for queue, bodies in model.items():
            if queue.name.partition(".")[2].partition(".")[2] == to.name:
                bodies.append(body)


def _waiting(stepped: Stepped, queue: Destination) -> list[str]:
    session = stepped.session()
    found = stepped.receive(session, queue).texts
    stepped.close(session)
    return found
