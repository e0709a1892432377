"""A gateway between clients and an ActiveMQ, whose traffic has faults that are known: what the
pipeline says of it is compared with what was done.

Owns the two brokers, the links, the faults, and the truth: what became of each message, by what
clients sent, received and found lying in queues. Nothing of that is read from the journal. ::

    clients  --plain, again, refused, late, kept, memory-->  the gateway
    the gateway  --out (JMS, with a transformer), twice (STOMP), most (STOMP, AT_MOST_ONCE)-->  ActiveMQ
    ActiveMQ     --back (STOMP)-->    the gateway
    the gateway  --within (once)-->   the gateway
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gateway.admin.cli.client import AdminError
from gateway.instance.crashpoints import HELD, HOLD, LINK_VARIABLE, ORDER
from gateway.journal.schema import Step
from gateway.messaging import dead
from gateway.messaging.destination import Queue
from gateway.messaging.envelope import CONTENT_TYPE, encode
from gateway.messaging.message import BodyType, Headers, Message
from tests.crash.client import Client, Frame
from tests.crash.client import encode as frame
from tests.crash.waiting import until
from tests.faults.links import AT_MOST_ONCE, BRIDGE, HERE, BridgedGateway, Link, activemq, stomp
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.gateway.journal.reading import ids_of
from tests.servers import ActiveMQ, started


@dataclass(frozen=True)
class Fate:
    """What became of one message.

    :param queue: where it was sent.
    :param outcome: as journeys call it.
    :param attempts: how often it was handed out; several numbers where it cannot be known.
    """

    queue: str
    body: str
    outcome: str
    attempts: tuple[int, ...] = (1,)


@dataclass
class Truth:
    """What was done.

    :ivar fates: of each message, by its id. :ivar clean_until: a time before which nothing went
        wrong.
    :ivar twice: ids at the source of what lies twice at a link's target, by link.
    """

    fates: dict[str, Fate] = field(default_factory=dict)
    clean_until: str = ""
    twice: dict[str, set[str]] = field(default_factory=dict)

    def ids(self, queue: str, word: str = "", outcome: str = "") -> set[str]:
        """Of messages sent to a queue, those whose body begins with a word, and with an outcome."""
        return {
            id
            for id, fate in self.fates.items()
            if fate.queue == queue
            and fate.body.startswith(word)
            and fate.outcome.startswith(outcome)
        }

    def note(self, queue: str, ids: dict[str, str], outcome: str, *attempts: int) -> None:
        """:param ids: bodies by id."""
        for id, body in ids.items():
            self.fates[id] = Fate(queue, body, outcome, attempts or (1,))


BRIDGE_DMQ: Final = "imq.bridge.jms.dmq"
BROKER_DMQ: Final = "mq.sys.dmq"
#: Messages that each link moves before anything goes wrong, and after.
CLEAN: Final = 20
FAULTY: Final = 40
#: Of these each link's batches are at most.
BATCH: Final = 5
LINKS: Final = ("out", "twice", "most", "back", "within")
#: How often a message is delivered whose consumer always refuses it.
REFUSALS: Final = 3
#: Those whose connection breaks while they are sent, by their number.
LOST: Final = (3, 11, 29)
#: What is done at targets behind the links' backs.
TAKEN: Final = 3

TRANSFORMER: Final = """\
from gateway.messaging.transformer import MessageTransformer


class Odd(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        body = message.octets.decode()
        if {poison} and body.startswith("poison"):
            raise ValueError(f"no price in order {{body.split()[-1]}}")
        if body.startswith("change"):
            message = message.copy()
            message.octets = body.upper().encode()
        return message
"""


class ProofGateway(BridgedGateway):
    """The gateway.

    A dead message is offered to the bridges' queue once, so that a full one is found out at once.
    """

    def __init__(self, varhome: Path, links: Sequence[Link], **options: Any) -> None:
        super().__init__(varhome, links, **options)
        file = varhome / f"{BRIDGE}.xml"
        first = "<connection-factory "
        file.write_text(
            file.read_text().replace(
                first, f'<dmq name="built-in-dmq" send-attempts="1"/>\n{first}', 1
            )
        )

    def update(self, queue: str, **properties: str) -> None:
        self._client().ask(
            "PUT",
            "/v1/destination",
            {"type": "queue", "name": queue, "properties": properties},
        )


class Rig:
    """Both brokers, with all that is done to them.

    :param folder: for the gateway's files.
    :param ending: ends what is started.
    """

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.truth: Final = Truth()
        self.far: Final = started(ActiveMQ)
        self._lossy = ending.enter_context(Proxy(self.far.port))
        self._forgetful = ending.enter_context(Proxy(self.far.port))
        odd = {
            "message-transformer-class": "odd:Odd",
            "consume-no-transfer-on-transform-error": "true",
        }
        plain = stomp("far", self.far.port)
        links = [
            Link(
                "out", HERE, activemq("jms", self.far.openwire_port), BATCH, target_attributes=odd
            ),
            Link("twice", HERE, plain, BATCH),
            Link("most", HERE, stomp("lossy", self._lossy.port), 1, AT_MOST_ONCE),
            Link("back", stomp("forgetful", self._forgetful.port), HERE, BATCH),
            Link("within", HERE, HERE, BATCH, "ONCE_AND_ONLY_ONCE", {"transacted": "true"}),
        ]
        self._orders = folder / "orders"
        self._orders.mkdir()
        self._transformer = folder / "var" / "lib" / "ext" / "odd.py"
        self._transformer.parent.mkdir(parents=True)
        self._transformer.write_text(TRANSFORMER.format(poison=True))
        self.gateway: Final = ProofGateway(
            folder / "var",
            links,
            settings={
                "imq.journal.level": "all",
                "imq.journal.segment.size": "64k",
                "imq.message.expiration.interval": "1",
            },
            environment={**os.environ, LINK_VARIABLE: f"@{self._orders}"},
        )
        self.passcode_file: Final = folder / "passcode"
        ending.callback(self.gateway.kill)

    @property
    def journal(self) -> Path:
        return self.gateway.directory / "journal"

    def start(self) -> None:
        self.gateway.start()
        lines = (self.gateway.directory / "etc" / "passfile").read_text().splitlines()
        self.passcode_file.write_text(
            dict(line.partition("=")[::2] for line in lines)["imq.bridge.admin.password"]
        )
        self.gateway.until_moving(*LINKS)

    # --- the traffic

    def clean(self) -> None:
        """Every link moves messages, and nothing goes wrong."""
        for link in LINKS:
            ids = self._through(link, [f"clean {link} {number}" for number in range(CLEAN)])
            self.truth.note(f"{link}.in", ids, "delivered")
        self.truth.clean_until = datetime.now(UTC).replace(tzinfo=None).isoformat()

    def transformed(self) -> None:
        """A transformer fails for some, and changes some."""
        words = ("poison", "change", "keep", "keep")
        ids = self._through("out", [f"{words[number % 4]} {number}" for number in range(FAULTY)])
        for id, body in ids.items():
            self.truth.note(
                "out.in", {id: body}, "dead" if body.startswith("poison") else "delivered"
            )
        self._through_and_noted("within")

    def lost(self) -> None:
        """The target goes away while it is sent what may not be sent twice, and the dead message
        queue is full.
        """
        self.gateway.update(BRIDGE_DMQ, maxBytesPerMsg="1")
        bodies = [f"most {number}." for number in range(FAULTY)]
        triggers = []
        for number in LOST:
            pattern = rb"SEND\n[^\0]*" + re.escape(bodies[number].encode())
            triggers.append(
                self._lossy.when(Trigger(Toward.SERVER, pattern, Fault.DROP, after=False))
            )
        ids = self._through("most", bodies)
        for trigger in triggers:
            trigger.wait()
        # They are settled before they are sent.
        last = bodies[-1]
        until(lambda: last in self.far_bodies("most.out"), "the last one never came")
        missing = set(bodies) - set(self.far_bodies("most.out"))
        assert missing == {bodies[number] for number in LOST}
        for id, body in ids.items():
            self.truth.note("most.in", {id: body}, "lost" if body in missing else "delivered")
        self.gateway.update(BRIDGE_DMQ, maxBytesPerMsg="-1")

    def forgotten(self) -> None:
        """The source goes away when it is told that its messages have arrived, and gives them out
        again.
        """
        trigger = Trigger(Toward.SERVER, rb"ACK\n", Fault.DROP, after=False)
        ids = self._through(
            "back",
            [f"back {number}" for number in range(FAULTY)],
            lambda: self._forgetful.when(trigger),
        )
        trigger.wait()
        until(lambda: self._twice("back", ids), "nothing came twice")
        self.truth.twice["back"] = self._twice("back", ids)
        buried = {one.headers[dead.BRIDGE_SOURCE_MESSAGE_ID] for one in self._dead("ACK_FAILURE")}
        assert buried == self.truth.twice["back"]
        for id, body in ids.items():
            # A link keeps what it could not acknowledge among the dead, too. How much had been
            # given out beyond the batch nobody says.
            outcome, attempts = ("dead", (2,)) if id in buried else ("delivered", (1, 2))
            self.truth.note("back.in", {id: body}, outcome, *attempts)

    def killed(self) -> None:
        """The gateway is killed when a batch has arrived and its source has not been told; what was
        in memory only is gone.
        """
        ids = self.put("memory", [f"memory {number}" for number in range(6)], persistent="false")
        self.truth.note("memory", ids, "lost", 0)
        self.gateway.operate("stop", "twice")
        ids = self.put("twice.in", [f"twice {number}" for number in range(FAULTY)])
        given = self._orders / "given"
        given.write_text(f"{'link.before-acknowledge'}:1 {HOLD}")
        given.rename(self._orders / ORDER)
        with ThreadPoolExecutor(1) as beside:
            # It has no answer while the gateway is held.
            asked = beside.submit(self.gateway.operate, "start", "twice")
            until(
                (self._orders / HELD).exists,
                lambda: f"no batch came to its acknowledgement:\n{self.gateway.log[-3000:]}",
            )
            # What is told goes to the kernel a little later. What was not yet there when it is
            # killed, nobody knows of.
            until(
                lambda: (
                    self._told_of("twice", Step.ARRIVED)
                    == self._told_of("twice", Step.RECEIVED)
                    > CLEAN
                ),
                "not in the journal",
            )
            self.gateway.kill()
            assert isinstance(asked.exception(), AdminError | OSError | None)
        for file in (ORDER, HELD):
            (self._orders / file).unlink()
        self.gateway.start()
        self.gateway.until_moving(*LINKS)
        self._until_at_rest("twice", FAULTY)
        self.truth.twice["twice"] = self._twice("twice", ids)
        assert 0 < len(self.truth.twice["twice"]) <= BATCH
        for id, body in ids.items():
            again = id in self.truth.twice["twice"]
            self.truth.note("twice.in", {id: body}, "delivered", *((2,) if again else (1, 2)))

    def consumed(self) -> None:
        """Clients take messages, go away with some, refuse some, and are late for some."""
        self.truth.note("plain", self._taken("plain", 60), "delivered")
        ids = self.put("again", [f"again {number}" for number in range(12)])
        left = ids
        for attempt, acknowledged in ((1, 4), (2, 5), (3, 3)):
            done = self._acknowledged("again", len(left), acknowledged)
            self.truth.note("again", {id: ids[id] for id in done}, "delivered", attempt)
            left = {id: body for id, body in left.items() if id not in done}
        assert not left
        ids = self.put("refused", [f"refused {number}" for number in range(8)])
        self._refused("refused", ids)
        self.truth.note("refused", ids, "dead", REFUSALS)
        ids = self.put("refused.once", [f"refused once {number}" for number in range(4)])
        self._refused("refused.once", ids, requeue="false")
        self.truth.note("refused.once", ids, "dead")
        bodies = [f"late {number}" for number in range(7)]
        with Client(self.gateway.port) as client:
            for body in bodies:
                client.store("/queue/late", body.encode(), ttl="1")
        until(
            lambda: len(self._broker_dead("late")) == len(bodies),
            lambda: f"{self._broker_dead('late')}\n{self.gateway.log[-2000:]}",
        )
        self.truth.note("late", self._broker_dead("late"), "expired", 0)
        self.truth.note(
            "kept", self.put("kept", [f"kept {number}" for number in range(25)]), "waiting", 0
        )

    def ended(self) -> None:
        """The gateway is ended in order, and started with a transformer that fails no more; what
        waits here is noted.
        """
        for queue in ("within.out", "back.out", BRIDGE_DMQ):
            self.truth.note(queue, _bodies(self.browsed(queue)), "waiting", 0)
        self.gateway.terminate()
        self._transformer.write_text(TRANSFORMER.format(poison=False))
        self.gateway.start()
        self.gateway.until_moving(*LINKS)

    # --- behind the links' backs

    def taken_at_the_target(self) -> set[str]:
        """Somebody takes some of what a link has brought to ActiveMQ.

        :returns: their bodies there.
        """
        with Client(self.far.port) as client:
            client.ask(
                "SUBSCRIBE",
                {
                    "destination": "/queue/out.out",
                    "id": "1",
                    "ack": "client-individual",
                    "activemq.prefetchSize": "1",
                },
            )
            bodies = set()
            for _ in range(TAKEN):
                frame = client.message()
                client.ask("ACK", {"id": frame.headers["ack"]})
                bodies.add(frame.body.decode())
        return bodies

    def changed_at_the_target(self) -> str:
        """Somebody changes a message that a link has brought, and leaves everything else of it.
        :returns: its body as it was.
        """
        with Client(
            self.gateway.port, login="admin", passcode=self.passcode_file.read_text()
        ) as client:
            client.ask(
                "SUBSCRIBE",
                {
                    "destination": "/queue/within.out",
                    "id": "1",
                    "ack": "client-individual",
                    "prefetch-count": "1",
                },
            )
            frame = client.message()
            client.ask("ACK", {"id": frame.headers["ack"]})
            client.ask("UNSUBSCRIBE", {"id": "1"})
            headers = Headers(Queue("within.out"), body_type=BodyType.TEXT, persistent=True)
            changed = Message(
                headers,
                b"another body",
                message_id=frame.headers["message-id"],
                timestamp=int(frame.headers["timestamp"]),
            )
            client.ask(
                "SEND",
                {"destination": "/queue/within.out", "content-type": CONTENT_TYPE},
                encode(changed),
            )
        return frame.body.decode()

    # --- looking

    def arguments(self, prefix: str = "", *, far: bool = False) -> list[str]:
        if far:
            return [f"--{prefix}port", str(self.far.port)]
        given = {
            "port": str(self.gateway.port),
            "login": "admin",
            "passcode-file": str(self.passcode_file),
        }
        return [word for name, value in given.items() for word in (f"--{prefix}{name}", value)]

    def browsed(self, queue: str) -> list[Frame]:
        with Client(
            self.gateway.port, login="admin", passcode=self.passcode_file.read_text()
        ) as client:
            return _browsed(client, queue)

    def far_bodies(self, queue: str) -> list[str]:
        with Client(self.far.port) as client:
            return [frame.body.decode() for frame in _browsed(client, queue)]

    def put(
        self, queue: str, bodies: Sequence[str], *, far: bool = False, **headers: str
    ) -> dict[str, str]:
        """Send messages to a queue without consumers.

        :param far: to ActiveMQ.
        :returns: their bodies by id.
        """
        with Client(self.far.port if far else self.gateway.port) as client:
            for body in bodies:
                client.store(f"/queue/{queue}", body.encode(), **headers)
            found = _bodies(_browsed(client, queue))
        assert sorted(found.values()) == sorted(bodies), queue
        return found

    # --- parts of it

    def _through(
        self, link: str, bodies: Sequence[str], before: Any = lambda: None
    ) -> dict[str, str]:
        """Have a link move messages.

        :param before: called before it begins.
        :returns: their bodies by id, at the source.
        """
        moved = self.gateway.query(link)["counters"]["acknowledged"]
        self.gateway.operate("stop", link)
        ids = self.put(f"{link}.in", bodies, far=link == "back")
        before()
        self.gateway.operate("start", link)
        self._until_at_rest(link, moved + len(bodies))
        return ids

    def _through_and_noted(self, link: str) -> None:
        ids = self._through(link, [f"{link} {number}" for number in range(FAULTY)])
        self.truth.note(f"{link}.in", ids, "delivered")

    def _until_at_rest(self, link: str, count: int) -> None:
        """Wait until a link has settled so many messages since the gateway's start, and is busy
        with none.
        """
        self.gateway.until_link(
            link,
            lambda told: (
                told["counters"]["acknowledged"] >= count
                and not told["in_flight"]
                and told["state"] == "STARTED"
            ),
            f"{count} settled",
        )

    def _told_of(self, link: str, step: Step) -> int:
        """Messages of a link of which a step is in the journal's files, whole or not."""
        lines = [json.loads(line) for text in self._journal_texts() for line in text.splitlines()]
        return sum(
            len(ids_of(line))
            for line in lines
            if line.get("link") == f"{BRIDGE}/{link}" and step in line["steps"]
        )

    def _journal_texts(self) -> list[str]:
        """The journal's files up to the last line that is whole.

        A file gets another name when it is whole, and one that is listed may be gone by then: all
        are read again, since a file by its new name may not be in the list.
        """
        while True:
            try:
                texts = [path.read_text() for path in self.journal.glob("*.jsonl*")]
            except FileNotFoundError:
                continue
            return [text[: text.rfind("\n") + 1] for text in texts]

    def _twice(self, link: str, ids: dict[str, str]) -> set[str]:
        """What lies more than once at a link's target, by the ids at its source."""
        target = f"{link}.out"
        there = (
            [frame.body.decode() for frame in self.browsed(target)]
            if link == "back"
            else self.far_bodies(target)
        )
        counted = Counter(there)
        return {id for id, body in ids.items() if counted[body] > 1}

    def _dead(self, reason: str) -> list[Frame]:
        return [
            frame
            for frame in self.browsed(BRIDGE_DMQ)
            if frame.headers[dead.BRIDGE_REASON] == reason
        ]

    def _broker_dead(self, word: str) -> dict[str, str]:
        return {
            id: body
            for id, body in _bodies(self.browsed(BROKER_DMQ)).items()
            if body.startswith(word)
        }

    def _taken(self, queue: str, count: int) -> dict[str, str]:
        ids = self.put(queue, [f"{queue} {number}" for number in range(count)])
        self._acknowledged(queue, count, count)
        return ids

    def _acknowledged(self, queue: str, delivered: int, acknowledged: int) -> list[str]:
        """A consumer is given messages, acknowledges the first of them, and breaks its connection.
        :returns: the ids of these.
        """
        with Client(self.gateway.port) as client:
            client.ask(
                "SUBSCRIBE",
                {"destination": f"/queue/{queue}", "id": "1", "ack": "client-individual"},
            )
            frames = [client.message() for _ in range(delivered)]
            for frame in frames[:acknowledged]:
                client.ask("ACK", {"id": frame.headers["ack"]})
        return [frame.headers["message-id"] for frame in frames[:acknowledged]]

    def _refused(self, queue: str, ids: dict[str, str], **headers: str) -> None:
        """A consumer refuses messages until all are dead.

        :param headers: of each NACK.
        """
        policy = {
            "maximumRedeliveries": str(REFUSALS - 1),
            "initialRedeliveryDelay": "10",
            "redeliveryDelay": "10",
            "useExponentialBackOff": "false",
        }
        given = {f"activemq.{name}": value for name, value in policy.items()}
        with Client(self.gateway.port) as client:
            client.ask(
                "SUBSCRIBE",
                {"destination": f"/queue/{queue}", "id": "1", "ack": "client-individual", **given},
            )
            for _ in range(len(ids) * (1 if headers else REFUSALS)):
                client.write(frame("NACK", {"id": client.message().headers["ack"], **headers}))
            until(
                lambda: ids.keys() <= self._broker_dead(queue.split(".")[0]).keys(),
                f"{queue}: they never died",
            )


def _browsed(client: Client, queue: str) -> list[Frame]:
    found = client.ask(
        "SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "b", "browser": "true", "ack": "auto"}
    )
    while not found or found[-1].headers.get("browser") != "end":
        found.append(client.message())
    return found[:-1]


def _bodies(frames: Sequence[Frame]) -> dict[str, str]:
    return {frame.headers["message-id"]: frame.body.decode(errors="replace") for frame in frames}
