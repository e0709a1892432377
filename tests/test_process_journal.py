"""The journal of a gateway as a process: what its segments tell of real traffic, after an orderly
end, a kill, a full disk and a reload.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import dbmgr
from gateway.admin.cli import imqcmd
from gateway.journal.schema import HEAD, OPEN, RUN_ENDED
from tests.crash.client import Client, Frame, encode
from tests.crash.waiting import log_of, reload, until, until_logged
from tests.gateway.journal.reading import Event, events_of, journeys, lines_of
from tests.gateway_process import HOST, GatewayProcess
from tests.test_process_tracing import metric

ALL = {"imq.journal.level": "all"}
QUEUE = "/queue/journal"
WRITTEN, LOST = "lines_total", "lost_lines_total"


def journal_of(gateway: GatewayProcess) -> Path:
    return gateway.directory / "journal"


def events(gateway: GatewayProcess) -> list[Event]:
    """Every event of a gateway that has ended in order.

    :raises AssertionError: a line is missing, or a segment is left open.
    """
    folder = journal_of(gateway)
    assert not [path for path in folder.iterdir() if path.name.endswith(OPEN)]
    lines = lines_of(folder)
    runs = {line["run"] for line in lines}
    for run in runs:
        numbers = [line["line"] for line in lines if line["run"] == run]
        assert numbers == list(range(1, len(numbers) + 1))
    return events_of(lines)


def subscribe(client: Client, destination: str = QUEUE, **headers: str) -> None:
    client.ask("SUBSCRIBE", {"destination": destination, "id": "s", **headers})


def id_of(frame: Frame) -> str:
    return frame.headers["message-id"]


def nothing_left(client: Client) -> None:
    """All that the client has asked for was done."""
    client.write(encode("DISCONNECT", {"receipt": "bye"}))
    assert [frame.command for frame in client.rest()][-1] == "RECEIPT"


def test_each_message_has_its_journey(start_gateway: Callable[..., GatewayProcess]) -> None:
    gateway = start_gateway(settings=ALL | {"imq.message.expiration.interval": "1"})
    truth: dict[str, list[str]] = {}
    with Client(gateway.port) as producer, Client(gateway.port) as consumer:
        # Stored, rejected once, then taken.
        for body in (b"one", b"two"):
            producer.store(QUEUE, body)
        subscribe(consumer, ack="client-individual")
        first, second = consumer.message(), consumer.message()
        consumer.ask("NACK", {"id": first.headers["ack"]})
        again = consumer.message()
        assert id_of(again) == id_of(first)
        consumer.ask("ACK", {"id": again.headers["ack"]})
        consumer.ask("ACK", {"id": second.headers["ack"]})
        stored = ["produced", "stored", "confirmed", "routed", "delivered"]
        taken = ["acknowledged", "deleted", "acknowledgement confirmed"]
        truth[id_of(first)] = [*stored, "returned", "routed", "redelivered", *taken]
        truth[id_of(second)] = [*stored, *taken]
        # Dead.
        producer.store(QUEUE, b"poison")
        poison = consumer.message()
        consumer.ask("NACK", {"id": poison.headers["ack"], "requeue": "false"})
        truth[id_of(poison)] = []
        # Not stored, in a transaction, and one that was aborted.
        for end in ("ABORT", "COMMIT"):
            producer.write(encode("BEGIN", {"transaction": end}))
            producer.write(
                encode(
                    "SEND",
                    {"destination": QUEUE, "transaction": end, "persistent": "false"},
                    end.encode(),
                )
            )
            producer.ask(end, {"transaction": end})
        committed = consumer.message()
        assert committed.body == b"COMMIT"
        consumer.ask("ACK", {"id": committed.headers["ack"]})
        truth[id_of(committed)] = ["produced", "confirmed", "routed", "delivered", *taken]
        # Expired.
        consumer.ask("UNSUBSCRIBE", {"id": "s"})
        producer.ask("SEND", {"destination": QUEUE, "persistent": "false", "expires": "1"}, b"old")
        consumer.ask("SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": "dmq", "ack": "auto"})
        dead = {frame.body: id_of(frame) for frame in (consumer.message(), consumer.message())}
        assert dead.keys() == {b"poison", b"old"}
        assert dead[b"poison"] == id_of(poison)
        nothing_left(producer)
        nothing_left(consumer)
    gateway.terminate()
    found = events(gateway)
    of_queue = journeys(event for event in found if event.line["destination"] == "queue:journal")
    graveyard = journeys(
        event for event in found if event.line["destination"] == "queue:mq.sys.dmq"
    )
    # A consumer that waits is given a message before it is durable.
    died_of = of_queue[id_of(poison)]
    assert sorted(died_of[:5]) == sorted(stored)
    assert died_of[5:] == ["returned", "dead", "deleted"]
    expected = {id: steps for id, steps in truth.items() if id != id_of(poison)}
    assert {id: of_queue[id] for id in expected} == expected
    assert "expired" in of_queue[dead[b"old"]]
    assert set(of_queue) == {*truth, dead[b"old"]}, "what was aborted never was"
    assert set(graveyard) == set(dead.values())
    assert all(
        steps[-4:] == ["routed", "delivered", "acknowledged", "deleted"]
        for steps in graveyard.values()
    )
    (died,) = [event for event in found if event.step == "dead"]
    assert died.line["reason"] == "UNDELIVERABLE"
    assert {event.line["user"] for event in found if "user" in event.line} == {"guest"}
    assert {event.line["subscription"] for event in found if event.step == "delivered"} == {
        "s",
        "dmq",
    }


def test_a_durable_subscription_takes_its_time(
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    gateway = start_gateway(settings=ALL)
    topic = "/topic/journal"
    durable = {"headers": {"client-id": "me"}}

    def take(client: Client) -> list[Frame]:
        subscribe(client, topic, ack="client", **{"durable-subscriber-name": "d"})
        return [client.message() for _ in range(20)]

    with Client(gateway.port, **durable) as first:  # type: ignore[arg-type]
        subscribe(first, topic, ack="client", **{"durable-subscriber-name": "d"})
        first.ask("UNSUBSCRIBE", {"id": "s"})
        nothing_left(first)
    with Client(gateway.port) as producer:
        for number in range(20):
            producer.store(topic, b"%d" % number)
    gateway.restart()
    with Client(gateway.port, **durable) as second:  # type: ignore[arg-type]
        frames = take(second)
        second.ask("ACK", {"id": frames[-1].headers["ack"]})
        nothing_left(second)
    gateway.terminate()
    found = events(gateway)
    taken = ["delivered", "acknowledged", "deleted", "acknowledgement confirmed"]
    steps = ["produced", "routed", "stored", "confirmed", *taken]
    assert journeys(found) == {id_of(frame): steps for frame in frames}
    assert len({event.line["run"] for event in found}) == 2
    assert {
        event.line.get("subscription") for event in found if event.step in ("routed", *taken)
    } == {"d"}


def test_what_was_written_survives_a_kill(start_gateway: Callable[..., GatewayProcess]) -> None:
    gateway = start_gateway(settings=ALL)
    taken = ["acknowledged", "deleted", "acknowledgement confirmed"]
    with Client(gateway.port) as producer, Client(gateway.port) as consumer:
        subscribe(consumer, ack="client-individual")
        for number in range(50):
            producer.store(QUEUE, b"%d" % number)
        frames = [consumer.message() for _ in range(50)]
        for frame in frames[:20]:
            consumer.ask("ACK", {"id": frame.headers["ack"]})

        def all_told() -> bool:
            (path,) = journal_of(gateway).glob(f"*{OPEN}")
            lines = [
                json.loads(line)
                for line in path.read_bytes().splitlines(keepends=True)
                if line.endswith(b"\n")
            ]
            return sum([event.step == taken[-1] for event in events_of(lines)]) == 20

        until(all_told, "the journal did not get there")
        gateway.kill()
    # What the kernel would have cut off had it gone, too.
    (path,) = journal_of(gateway).glob(f"*{OPEN}")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"v":1,"run":"half')
    gateway.start()
    until(
        lambda: (journal_of(gateway) / path.name.removesuffix(".open")).exists(),
        "it was not completed",
    )
    assert (journal_of(gateway) / path.name.removesuffix(".open")).read_bytes() == whole
    with Client(gateway.port) as consumer:
        subscribe(consumer, ack="auto")
        again = [consumer.message() for _ in range(30)]
        nothing_left(consumer)
    gateway.terminate()
    steps = journeys(events(gateway))
    before = ["produced", "stored", "confirmed", "routed", "delivered"]
    for frame in frames:
        assert sorted(steps[id_of(frame)][:5]) == sorted(before)
    assert [steps[id_of(frame)][5:] for frame in frames[:20]] == [taken] * 20
    assert {id_of(frame) for frame in again} == {id_of(frame) for frame in frames[20:]}
    for frame in again:
        assert steps[id_of(frame)][5:] == ["routed", "delivered", "acknowledged", "deleted"]


def test_a_full_disk_stops_the_journal_and_nothing_else(
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    room = 40_000
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, -1)); from gateway.command import main; main()"
    gateway = start_gateway(
        store="memory",
        settings=ALL | {"imq.journal.segment.size": "1g", "imq.log.file.rolloverbytes": "-1"},
        command=(sys.executable, "-c", limited),
    )
    with Client(gateway.port) as producer, Client(gateway.port) as consumer:
        subscribe(consumer, ack="auto")
        for number in range(400):
            producer.store(QUEUE, b"%d" % number)
            assert consumer.message().body == b"%d" % number
        until_logged(gateway, "the journal has stopped")
        # There is room again.
        resource.prlimit(
            gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        producer.store(QUEUE, b"on")
        assert consumer.message().body == b"on"
        nothing_left(producer)
    assert log_of(gateway).count("the journal has stopped") == 1
    gateway.terminate()
    lines = lines_of(journal_of(gateway))
    assert max([path.stat().st_size for path in journal_of(gateway).glob("*.jsonl")]) <= room
    *there, end = [line["line"] for line in lines]
    assert there == list(range(1, len(there) + 1)), "what is there is there to its end"
    assert (lines[-1]["steps"], lines[-1]["reason"]) == ([RUN_ENDED], "stopped")
    assert f" {end - len(there) - 1} lines before this one are lost" in lines[-1]["comment"]
    assert {steps[0] for steps in journeys(events_of(lines)).values()} == {"produced"}


def test_what_a_full_disk_has_cost_is_known_after_a_kill(
    start_gateway: Callable[..., GatewayProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, -1)); from gateway.command import main; main()"
    gateway = start_gateway(
        store="memory",
        settings=ALL
        | {
            "imq.journal.chain": "true",
            "imq.journal.segment.size": "1g",
            "imq.log.file.rolloverbytes": "-1",
        },
        command=(sys.executable, "-c", limited),
    )
    with Client(gateway.port) as producer:
        for number in range(300):
            producer.store(QUEUE, b"%d" % number)
        until_logged(gateway, "the journal has stopped")
        # The last line is taken with the last message, and is lost.
        until(
            lambda: sum(metric(gateway, name, "journal") for name in (WRITTEN, LOST)) == 3 * 300,
            "all is taken",
        )
        lost = int(metric(gateway, LOST, "journal"))
        gateway.kill()
    assert lost > 100
    where = ["verify", "journal", "-dir", str(journal_of(gateway))]
    # Before the next start.
    assert dbmgr.run(where) == 1
    assert f" has not ended: {lost} lines are missing, and " in capsys.readouterr().out
    gateway.start()
    until_logged(gateway, f"the run was killed: {lost} lines before this one are lost")
    assert dbmgr.run(where) == 1
    told = capsys.readouterr().out
    assert f" was killed: {lost} lines are missing, and lines of its last moment may be" in told
    assert "was changed" not in told
    passes = ["-passfile", str(gateway.directory / "etc" / "passfile"), "-u", "admin"]
    broker = ["-b", f"{HOST}:{gateway.port_mapper_port}", *passes]
    imqcmd.run(["why", "msg", "-id", "ID-none-1", *broker])
    why = capsys.readouterr().out
    assert f"{lost} lines of the journal were lost." in why
    assert "1 run of the gateway was killed in the time that was read" in why


@pytest.mark.parametrize("level", ["off", "dead", "links"])
def test_below_all_it_tells_of_the_dead_or_of_nothing(
    start_gateway: Callable[..., GatewayProcess], level: str
) -> None:
    gateway = start_gateway(
        settings={
            "imq.journal.level": level,
            "imq.journal.headers": "true",
            "imq.journal.bodies": "true",
        }
    )
    with Client(gateway.port) as client:
        subscribe(client, ack="client-individual")
        client.send(QUEUE, b"good", color="green")
        good = client.message()
        client.ask("ACK", {"id": good.headers["ack"]})
        client.send(QUEUE, b"bad", color="red")
        bad = client.message()
        client.ask("NACK", {"id": bad.headers["ack"], "requeue": "false"})
        nothing_left(client)
    gateway.terminate()
    found = events(gateway)
    assert [(event.step, event.id) for event in found] == (
        [] if level == "off" else [("dead", id_of(bad))]
    )
    for event in found:
        (headers,) = event.line["headers"]
        assert (headers["color"], event.line["bodies"], event.line["size"]) == ("red", ["YmFk"], 3)
        assert headers[HEAD]


def test_the_level_is_read_again(start_gateway: Callable[..., GatewayProcess]) -> None:
    gateway = start_gateway()
    with Client(gateway.port) as client:
        client.store(QUEUE, b"untold")
        settings = gateway.directory / "etc" / "gateway.properties"
        settings.write_text(settings.read_text() + "imq.journal.level=all\n")
        reload(gateway, "settings were read again")
        client.store(QUEUE, b"told")
        nothing_left(client)
    gateway.terminate()
    assert list(journeys(events(gateway)).values()) == [["produced", "stored", "confirmed"]]


def test_old_segments_go_at_a_start(start_gateway: Callable[..., GatewayProcess]) -> None:
    gateway = start_gateway(settings=ALL | {"imq.journal.retention": "2"})
    for body in (b"a", b"b"):
        with Client(gateway.port) as client:
            client.store(QUEUE, body)
            nothing_left(client)
        gateway.restart()
    old, new = sorted(journal_of(gateway).glob("*.jsonl"))
    os.utime(old, (1, 1))
    gateway.restart()
    until(lambda: not old.exists(), "it was kept")
    assert new.exists()


def test_a_chain_vouches_for_the_segments_of_a_gateway_that_was_killed(
    start_gateway: Callable[..., GatewayProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway(settings=ALL | {"imq.journal.chain": "true"})
    for _ in range(2):
        with Client(gateway.port) as client:
            client.store(QUEUE, b"x")
        until(
            lambda: b"stored" in b"".join(map(Path.read_bytes, journal_of(gateway).iterdir())),
            "the journal has it",
        )
        gateway.restart(crash=True)
    where = ["verify", "journal", "-dir", str(journal_of(gateway))]
    assert dbmgr.run(where) == 0
    told = capsys.readouterr().out
    head = told.split("Head of the chain: ")[1].strip()
    assert gateway.terminate() == 0
    assert dbmgr.run([*where, "-head", head]) == 0
    segments = sorted(journal_of(gateway).glob("*.jsonl"))
    assert f"Segments as they were chained: {len(segments)}\n" in capsys.readouterr().out
    with segments[0].open("r+b") as file:
        file.seek(20)
        file.write(b"!")
    assert dbmgr.run(where) == 1
    assert f"{segments[0].name} was changed: it has " in capsys.readouterr().out
    assert dbmgr.run([*where, "-head", "0" * 63 + "1"]) == 1
