"""What stops every destination of a broker, or every STOMP client."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.admin.why.cause import Cause, CauseKind, command, counted, moment, quoted
from gateway.admin.why.facts import Facts
from gateway.broker.broker import Broker


def broker_causes(broker: Broker, facts: Facts) -> Iterator[Cause]:
    """Yield what stops every destination."""
    if broker.reach.since_ms:
        yield Cause(
            CauseKind.STORE_UNREACHABLE,
            f"The database of the store cannot be reached since {moment(broker.reach.since_ms)}: nothing is confirmed and nothing is delivered.",
            {"since_ms": broker.reach.since_ms},
            "Bring the database back; the gateway goes on by itself. See what the broker says:",
            command("imqcmd", "query", "bkr"),
            broker.reach.since_ms,
        )
    commits = broker.commits
    if commits.broken is not None:
        yield Cause(
            CauseKind.STORE_FAILED,
            f"The store has failed: {commits.broken}.",
            {},
            "Mend the disk, check the store, and start the gateway again; this process ends.",
        )
    elif commits.full:
        yield Cause(
            CauseKind.DISK_FULL,
            f"The disk of the store is full: {counted(commits.octets_without_room, 'byte')} of messages wait for room, and senders are held back.",
            {"octets": commits.octets_without_room},
            "Make room on the disk; what waits is stored by itself then. See what the broker says:",
            command("imqcmd", "query", "bkr"),
        )
    memory = broker.memory
    if memory.senders_must_wait():
        yield Cause(
            CauseKind.MEMORY_FULL,
            f"Waiting messages take {memory.used} bytes of memory, more than {memory.most}, and none can go to the store: senders are held back.",
            {"octets": memory.used, "most": memory.most},
            "Consume or purge what waits, or raise imq.memory.waiting; the fullest queues are listed by:",
            command("imqcmd", "list", "dst"),
        )
    yield from service_causes(facts)


def service_causes(facts: Facts) -> Iterator[Cause]:
    """Yield why no client of the STOMP bridge receives."""
    if facts.stomp == "PAUSED":
        yield Cause(
            CauseKind.SERVICE_PAUSED,
            f"The STOMP bridge is PAUSED: its {counted(len(facts.sessions), 'client')} may send, and nothing is delivered to them.",
            {"clients": len(facts.sessions)},
            "Resume it:",
            command("imqbridgemgr", "resume", "bridge", "-bn", "stomp"),
        )
    elif facts.stomp in ("STOPPED", "STOPPING"):
        yield Cause(
            CauseKind.SERVICE_PAUSED,
            f"The STOMP bridge is {facts.stomp}: no client can connect.",
            {"clients": 0},
            "Start it:",
            command("imqbridgemgr", "start", "bridge", "-bn", "stomp"),
        )
    for name, state in facts.closed if facts.stomp == "STARTED" else ():
        yield Cause(
            CauseKind.LISTENER_CLOSED,
            f"Listener {quoted(name)} is {state}: no client can connect there.",
            {},
            "Open it:",
            command("imqcmd", "resume", "svc", "-n", name),
        )
