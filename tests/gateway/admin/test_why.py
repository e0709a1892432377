"""Causes that no scene makes happen, as values made from values."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gateway
from bridge.link.status import BalanceTerms, Doing, LinkCounters, LinkState, LinkStatus
from gateway.admin.why.broker import broker_causes
from gateway.admin.why.cause import Cause, CauseKind, command, ranked, span
from gateway.admin.why.facts import Facts, LinkFacts
from gateway.admin.why.journeys import read_journey
from gateway.admin.why.links import link_causes
from gateway.admin.why.messages import UNUSED, journey_causes, unknown_of_journal
from gateway.admin.why.names import by_exchange, nearness, temporary_name
from gateway.admin.why.selectors import Miss, misses
from gateway.journal.journal import JournalStanding
from gateway.journal.lines import Lines
from gateway.journal.runs import Runs, end_left
from gateway.journal.schema import segment_name
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.message import LAST_VALUE, BodyType, Headers, Message
from gateway.messaging.selector.selector import parse
from gateway.messaging.selector.terms import terms_of

NO_FACTS = Facts(now_ms=0, connections={}, stomp="STARTED")


def broker(**given: Any) -> Any:
    """A broker for which all is well except what is given."""
    parts: dict[str, Any] = {
        "since_ms": 0,
        "broken": None,
        "full": False,
        "must_wait": False,
        **given,
    }
    return SimpleNamespace(
        reach=SimpleNamespace(since_ms=parts["since_ms"]),
        commits=SimpleNamespace(
            broken=parts["broken"], full=parts["full"], octets_without_room=1000
        ),
        memory=SimpleNamespace(senders_must_wait=lambda: parts["must_wait"], used=2, most=1),
    )


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"since_ms": 1000}, CauseKind.STORE_UNREACHABLE),
        ({"broken": "fsync failed"}, CauseKind.STORE_FAILED),
        ({"full": True}, CauseKind.DISK_FULL),
        ({"must_wait": True}, CauseKind.MEMORY_FULL),
    ],
)
def test_what_stops_the_whole_broker(given: dict[str, Any], kind: CauseKind) -> None:
    assert [cause.kind for cause in broker_causes(broker(**given), NO_FACTS)] == [kind]
    assert not list(broker_causes(broker(), NO_FACTS))


def test_the_likeliest_and_heaviest_come_first() -> None:
    causes = [
        Cause(CauseKind.DEAD, "dead"),
        Cause(CauseKind.NO_CREDIT, "light", weight=1),
        Cause(CauseKind.NO_CREDIT, "heavy", weight=9),
        Cause(CauseKind.DISK_FULL, "full"),
        Cause(CauseKind.DEAD, "dead"),
    ]
    assert [cause.sentence for cause in ranked(causes)] == ["full", "heavy", "light", "dead"]


@pytest.mark.parametrize("header", [header for header in UNUSED if header != LAST_VALUE])
def test_what_is_said_to_mean_nothing_is_read_by_no_profile(header: str) -> None:
    sources = Path(gateway.__file__).parent
    found = [path for path in sources.rglob("*.py") if header in path.read_text()]
    assert [path.relative_to(sources).as_posix() for path in found] == ["admin/why/messages.py"]


def test_a_command_is_one_whatever_a_name_is() -> None:
    for name in ("a b", "'; rm -rf /", "$(x)", "é\u202e", '"'):
        assert shlex.split(command("imqcmd", "why", "dst", "-n", name))[-2:] == ["-n", name]
    # It may be an option, too, for which the command would take it.
    for name in ("-n", "-f", "-x y"):
        assert shlex.split(command("imqcmd", "why", "dst", "-n", name))[-1] == f"-n={name}"


def test_spans() -> None:
    assert [span(ms) for ms in (0, 9_900, 61_000, 7_260_000, 180_000_000)] == [
        "0.0 s",
        "9.9 s",
        "1 min 1 s",
        "2 h 1 min",
        "2 d 2 h",
    ]


# --- selectors


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND (b > 2 OR NOT c LIKE 'x%' ESCAPE '!') AND d IN ('p', 'q''s')",
        "a BETWEEN 1 AND 2 AND b NOT BETWEEN 1 + 2 * 3 AND -4 AND c IS NOT NULL AND TRUE",
    ],
)
def test_conditions_are_written_out_as_they_mean(text: str) -> None:
    again = " AND ".join(f"({term.text})" for term in terms_of(text))
    assert [term.text for term in terms_of(again)] == [term.text for term in terms_of(text)]
    assert parse(again)


def _message(**properties: Any) -> Message:
    return Message(Headers(Queue("q"), body_type=BodyType.TEXT, properties=properties), b"")


def test_the_nearest_miss_is_what_alone_keeps_most_out() -> None:
    sample = [_message(a="1", b="x")] * 3 + [_message(a="2", b="y")] * 2 + [_message()]
    miss = Miss("a = '1' AND b = 'z'")
    for _ in misses(miss.text, sample, miss):
        pass
    assert (miss.looked_at, miss.matched) == (6, 0)
    assert miss.nearest is not None
    assert (miss.nearest.term.text, miss.nearest.failed, miss.nearest.alone) == ("b = 'z'", 6, 3)
    assert "b is absent from 1, b is 'x' on 3, b is 'y' on 2" in miss.sentence


# --- names


@pytest.mark.parametrize(
    ("first", "second", "near"),
    [
        ("orders", "Orders", True),
        ("orders", "queue/orders", True),
        ("orders", "jms.queue.orders", True),
        ("order-lines", "order_lines", True),
        ("payments", "payment", True),
        ("orders", "/exchange/amq.topic/orders", True),
        ("orders", "/exchange/shop/orders", False),
        ("orders", "invoices", False),
        ("a", "b", False),
    ],
)
def test_names_that_are_near(first: str, second: str, near: bool) -> None:
    assert (nearness(first, second) >= 0.8) is near


@pytest.mark.parametrize(
    ("asked", "topic", "exchange"),
    [
        ("/exchange/amq.topic/k.#", "k.>", ""),
        ("/exchange/amq.direct/k", "amq.direct.k", ""),
        ("/exchange/amq.fanout", "amq.fanout.none", ""),
        ("/exchange/orders/created", "amq.exchange.orders.created", "/exchange/orders/created"),
        ("/exchange/orders", "amq.exchange.orders", "/exchange/orders"),
        ("/exchange/orders.eu/a%2Fb", "amq.exchange.orders%2Eeu.a/b", "/exchange/orders.eu/a%2Fb"),
        # No client can name these.
        ("/exchange/amq.rabbitmq.trace/#", None, "/exchange/amq.rabbitmq.trace/#"),
        ("/exchange//k", None, "/exchange//k"),
        ("/exchange/amq.topic", None, "/exchange/amq.topic"),
        ("exchange.orders", None, ""),
        ("/queue/a", None, ""),
    ],
)
def test_an_exchange_is_asked_about_by_its_topic(
    asked: str, topic: str | None, exchange: str
) -> None:
    for wanted in (Queue(asked), Topic(asked)):
        expected = wanted if topic is None else Topic(topic)
        assert by_exchange(wanted) == (expected, exchange)


def test_names_of_temporary_destinations() -> None:
    name = "0123456789abcdef" * 2
    assert temporary_name(f"temporary_destination://queue/{name}") == name
    assert temporary_name(name) == name
    assert temporary_name("orders") == ""


# --- links


def status(state: LinkState, **given: Any) -> LinkStatus:
    """A link of that state."""
    known: dict[str, Any] = {
        "bridge": "b",
        "name": "l",
        "state": state,
        "enabled": True,
        "transacted": False,
        "quality_of_service": "DUPLICATES_OK",
        "source": "here:D:queue:in",
        "target": "there:D:queue:out",
        "since_ms": 1000,
        "last_error": "",
        "last_error_ms": 0,
        "attempt": 0,
        "next_try_ms": 0,
        "in_flight": 0,
        "doing": Doing.RECEIVING,
        "doing_since_ms": 1000,
        "last_transfer_ms": 0,
        "lag_ms": 0,
        "received_rate": 0.0,
        "sent_rate": 0.0,
        "counters": LinkCounters(),
        "waiting": 3,
    }
    return LinkStatus(**{**known, **given})


def test_a_difference_what_is_in_doubt_and_what_is_there_twice() -> None:
    terms = BalanceTerms(taken=10, out=6, in_doubt=2, lost=1, possibly_twice=4)
    link = LinkFacts(status(LinkState.STARTED, balance=terms, difference=terms.difference))
    causes = {cause.kind: cause for cause in link_causes(link, 5000)}
    assert causes[CauseKind.UNBALANCED].figures["difference"] == 2
    assert "1 of them lost as AT_MOST_ONCE allows" in causes[CauseKind.UNBALANCED].sentence
    assert causes[CauseKind.PREPARED_TRANSACTION].figures["in_doubt"] == 2
    assert causes[CauseKind.POSSIBLY_TWICE].figures["possibly_twice"] == 4


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (LinkState.FAILED, CauseKind.LINK_FAILED),
        (LinkState.RETRYING, CauseKind.LINK_WAITING),
        (LinkState.STALLED, CauseKind.LINK_STALLED),
    ],
)
def test_a_failure_that_is_a_sentence_ends_in_one_full_stop(
    state: LinkState, kind: CauseKind
) -> None:
    link = status(state, last_error="the connection was lost.", last_error_ms=2000, waiting=-1)
    sentences = {cause.kind: cause.sentence for cause in link_causes(LinkFacts(link), 5000)}
    assert sentences[kind].count(".") == 1
    assert all(sentence.endswith("lost.") for sentence in sentences.values())


def test_a_stalled_link_that_has_lost_its_connection_says_when_it_tries_again() -> None:
    link = status(LinkState.STALLED, next_try_ms=9000, attempt=2, last_error="no RECEIPT")
    first, *_ = link_causes(LinkFacts(link), 5000)
    assert first.kind is CauseKind.LINK_STALLED
    assert "has lost its connection again" in first.sentence
    assert "tries again in 4.0 s; its last failure: no RECEIPT." in first.sentence


@pytest.mark.parametrize(
    ("doing", "told"),
    [
        (Doing.SENDING, "for its target to take what it sends, without an answer, for 12 s"),
        (Doing.ACKNOWLEDGING, "for its source to confirm"),
    ],
)
def test_a_batch_that_has_no_answer_is_told_before_the_link_is_stalled(
    doing: Doing, told: str
) -> None:
    link = LinkFacts(status(LinkState.STARTED, doing=doing, in_flight=20))
    first, *_ = link_causes(link, 13_000)
    assert first.kind is CauseKind.NO_ANSWER
    assert "has 20 messages on their way" in first.sentence
    assert told in first.sentence


@pytest.mark.parametrize(
    "given",
    [
        {"doing": Doing.RECEIVING, "in_flight": 20},
        {"doing": Doing.SENDING, "in_flight": 0},
        {"doing": Doing.SENDING, "in_flight": 20, "last_transfer_ms": 12_900},
    ],
)
def test_a_link_that_is_answered_is_not_said_to_wait(given: dict[str, Any]) -> None:
    link = LinkFacts(status(LinkState.STARTED, **given))
    assert CauseKind.NO_ANSWER not in {cause.kind for cause in link_causes(link, 13_000)}


def test_a_link_that_runs_and_has_failed_lately() -> None:
    link = status(LinkState.STARTED, last_error="the target refused it", last_error_ms=2000)
    causes = {cause.kind: cause for cause in link_causes(LinkFacts(link), 5000)}
    assert "the target refused it." in causes[CauseKind.REFUSED].sentence
    assert causes[CauseKind.REFUSED].command == "imqbridgemgr query link -bn b -ln l"


# --- the journal


def _journal(folder: Path, *lines: dict[str, Any]) -> None:
    whole = "".join(
        json.dumps({"v": 1, "run": "r", "line": at, **line}, separators=(",", ":")) + "\n"
        for at, line in enumerate(lines, 1)
    )
    (folder / "r-0000000001.jsonl").write_text(whole)


def test_a_journey_is_found_by_number_and_by_id(tmp_path: Path) -> None:
    _journal(
        tmp_path,
        {"time": 1_000_000, "steps": ["produced"], "prefix": "ID-x-", "runs": [[5, 3, 2]]},
        {"time": 2_000_000, "steps": ["produced"], "prefix": "ID-x-", "runs": [[8, 1, 1]]},
        {
            "time": 3_000_000,
            "steps": ["arrived"],
            "ids": ["other", "ID-x-7"],
            "target_ids": ["t1", "t2"],
            "destination": "queue:out",
            "provider": "there",
            "link": "b/l",
        },
    )
    (tmp_path / "r-0000000002.jsonl.open").write_text("not yet")
    journey = read_journey(tmp_path, "ID-x-7", 2)
    assert [(told.step, told.target_id) for told in journey.steps] == [
        ("produced", ""),
        ("arrived", "t2"),
    ]
    assert (journey.segments, journey.read, journey.open) == (1, 1, True)
    [cause] = journey_causes(journey, "ID-x-7")
    assert cause.kind is CauseKind.MOVED_ON
    assert "moved it on to queue:out of connection factory 'there'" in cause.sentence
    # Where it is now is known there only.
    assert cause.sentence.endswith("; it got the id t2 there.")
    assert read_journey(tmp_path, "ID-x-6", 2).steps == []
    assert [told.as_target for told in read_journey(tmp_path, "t1", 2).steps] == [True]


def test_a_target_that_names_no_id_is_said_to_name_none(tmp_path: Path) -> None:
    arrived = {"time": 3_000_000, "steps": ["arrived"], "ids": ["ID-x-7"], "link": "b/l"}
    _journal(tmp_path, {**arrived, "destination": "queue:out", "provider": "there"})
    [cause] = journey_causes(read_journey(tmp_path, "ID-x-7", 1), "ID-x-7")
    assert "the id that it got there is not known" in cause.sentence
    assert "RECEIPT names none" in cause.sentence
    assert 'add-message-id-in-header="true"' in cause.advice
    assert cause.figures["target_id"] == ""


def test_what_a_link_has_acknowledged_is_told_of_the_link(tmp_path: Path) -> None:
    of_it = {"ids": ["ID-x-7"], "destination": "queue:in"}
    taken = {**of_it, "time": 2_000_000, "steps": ["acknowledged"], "user": "u", "connection": 2}
    received = {**of_it, "time": 1_000_000, "steps": ["received"], "link": "b/l"}
    _journal(tmp_path, received, taken)
    [cause] = journey_causes(read_journey(tmp_path, "ID-x-7", 1), "ID-x-7")
    assert (
        cause.sentence
        == "It was delivered to link 'l' of bridge 'b', which acknowledged it at 1970-01-01 00:00:02Z, by connection 2."
    )
    assert cause.figures == {"user": "u", "connection": "2", "link": "b/l"}
    # A client has a subscription, and a link of another broker has it from there.
    for line, other in (({"subscription": "s"}, {}), ({}, {"destination": "queue:there"})):
        _journal(tmp_path, {**received, **other}, {**taken, **line})
        [cause] = journey_causes(read_journey(tmp_path, "ID-x-7", 1), "ID-x-7")
        assert "user 'u' acknowledged it" in cause.sentence
        assert "subscription ''" not in cause.sentence


@pytest.mark.parametrize(
    ("level", "said"),
    [("off", "is off"), ("dead", "level is dead"), ("links", "level is links"), ("all", "")],
)
def test_what_the_journal_cannot_say_is_said(tmp_path: Path, level: str, said: str) -> None:
    texts = unknown_of_journal(
        read_journey(tmp_path / "missing", "ID-x-1", 2), JournalStanding(level, 0, 0, 0, False), 60
    )
    assert said in " ".join(texts)
    assert bool(texts) is bool(said)


def test_lines_that_were_lost_and_runs_that_were_killed_are_said(tmp_path: Path) -> None:
    made = Lines("run", "test")
    fields = {"time": 1_000_000, "steps": ["produced"], "ids": ["ID-x-1"]}
    lines = [made.line(number, fields) for number in (1, 2, 5)]
    (tmp_path / segment_name("run", 1)).write_bytes(b"".join(lines))
    Runs(tmp_path, "run", "test").note(7, 5, 4)
    assert len(list(end_left(tmp_path))) == 1
    journey = read_journey(tmp_path, "ID-x-1", 2)
    assert len(journey.steps) == 3
    assert unknown_of_journal(journey, JournalStanding("all", 0, 0, 0, False), 60) == [
        "4 lines of the journal were lost.",
        "1 run of the gateway was killed in the time that was read: steps of the moment before may be missing.",
    ]
    # What this run has lost is noted beside it, and counts once.
    Runs(tmp_path, "run2", "test").note(3, 1, 2)
    journey = read_journey(tmp_path, "ID-x-1", 2)
    [lost, _] = unknown_of_journal(journey, JournalStanding("all", 0, 0, 2, True), 60)
    assert lost == "6 lines of the journal were lost."
