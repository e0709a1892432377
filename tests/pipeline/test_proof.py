"""The whole pipeline against the truth: clients, a gateway that is killed, and ActiveMQ at the
other end of its links, with losses, repetitions, poison and changes made on purpose.

Every job reads what that gateway wrote and holds, and answers what :mod:`tests.pipeline.proof_rig`
knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pipeline.command import main
from pipeline.tables.delta import DeltaFolder
from tests.crash.waiting import until
from tests.pipeline.proof_rig import BRIDGE_DMQ, BROKER_DMQ, CLEAN, FAULTY, LINKS, LOST, Rig, Truth

pytestmark = pytest.mark.brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POISON: Final = FAULTY // 4


class Proof:
    """The traffic is over, and the gateway runs.

    Jobs are run as their command does.

    :ivar table: what ingest has made of the journal. :ivar folder: for what they write.
    """

    def __init__(self, spark: SparkSession, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        self.table = folder / "events"
        self.spark = spark

    @property
    def truth(self) -> Truth:
        return self.rig.truth

    def rows(self, *words: object, code: int = 0, table: str = "") -> list[Any]:
        """Run a job, and read a table that it has written.

        :param code: its exit code.
        """
        out = self.folder / str(words[0])
        assert main([*map(str, words), "--output", str(out)]) == code
        return DeltaFolder(self.spark, str(out / table)).frame().collect()

    def reconciled(self, *words: object, code: int = 0, table: str = "messages") -> list[Any]:
        return self.rows("reconcile", self.table, *words, code=code, table=table)


@pytest.fixture(scope="module")
def proof(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    folder = tmp_path_factory.mktemp("proof")
    with ExitStack() as ending:
        rig = Rig(folder, ending)
        rig.start()
        rig.clean()
        rig.transformed()
        rig.lost()
        rig.forgotten()
        rig.killed()
        rig.consumed()
        rig.ended()
        found = Proof(spark, rig, folder)
        assert main(["ingest", "--journal", str(rig.journal), "--into", str(found.table)]) == 0
        yield found


def test_ingest_has_each_line_once_however_often_it_is_run(
    proof: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        json.loads(line) for path in proof.rig.journal.glob("*.jsonl") for line in path.open()
    ]
    counted = Counter(
        step
        for line in events
        for step in line["steps"]
        for _ in range(len(line.get("ids", ())) or sum(run[1] for run in line.get("runs", ())))
    )
    found = DeltaFolder(proof.spark, str(proof.table)).frame()
    rows = found.groupBy("step").count().collect()
    assert {row.step: row["count"] for row in rows} == counted
    assert main(["ingest", "--journal", str(proof.rig.journal), "--into", str(proof.table)]) == 0
    assert "Nothing new" in capsys.readouterr().out


def test_journeys_know_what_became_of_each_message_and_how_often_it_was_handed_out(
    proof: Proof,
) -> None:
    rows = proof.rows("journeys", proof.table, table="journeys")
    assert len(rows) == len({row.message_id for row in rows})
    found = {row.message_id: row for row in rows}
    fates = proof.truth.fates
    assert found.keys() == fates.keys(), _difference(found, fates)
    outcomes = {id: row.outcome for id, row in found.items()}
    wrong = {id: (fate, outcomes[id]) for id, fate in fates.items() if outcomes[id] != fate.outcome}
    assert not wrong, list(wrong.items())[:10]
    times = {
        id: (fate, found[id].attempts)
        for id, fate in fates.items()
        if (found[id].attempts or 0) not in fate.attempts
    }
    assert not times, list(times.items())[:10]
    assert not [row for row in rows if row.gap]
    # A message is followed over its link.
    carried = {id for row in rows for id in row.target_ids if row.links == ["proof/within"]}
    assert carried == proof.truth.ids("within.out")


def test_dead_letters_are_grouped_and_counted_in_the_journal_and_in_the_queues(
    proof: Proof,
) -> None:
    truth = proof.truth
    twice = len(truth.twice["back"])
    rows = proof.rows("dead-letters", proof.table, table="groups")
    assert _counted(rows, "reason", "destination", "link") == {
        ("TRANSFORM_FAILURE", "queue:out.in", "proof/out"): POISON,
        ("ACK_FAILURE", "queue:back.in", "proof/back"): twice,
        ("UNDELIVERABLE", "queue:refused", None): len(truth.ids("refused")),
        ("UNDELIVERABLE", "queue:refused.once", None): len(truth.ids("refused.once")),
        ("EXPIRED", "queue:late", None): len(truth.ids("late")),
    }
    [poison] = [row for row in rows if row.reason == "TRANSFORM_FAILURE"]
    assert poison.exception.endswith("no price in order <n>")
    assert {one.message_id for one in poison.examples} < truth.ids("out.in", "poison")
    queued = proof.rows(
        "dead-letters", "--queue", BRIDGE_DMQ, *proof.rig.arguments(), table="groups"
    )
    assert _counted(queued, "reason", "destination") == {
        ("TRANSFORM_FAILURE", "queue:out.in"): POISON,
        ("ACK_FAILURE", "queue:back.in"): twice,
    }
    queued = proof.rows(
        "dead-letters", "--queue", BROKER_DMQ, *proof.rig.arguments(), table="groups"
    )
    assert _counted(queued, "reason", "destination") == {
        ("UNDELIVERABLE", "queue:refused"): len(truth.ids("refused")),
        ("UNDELIVERABLE", "queue:refused.once"): len(truth.ids("refused.once")),
        ("EXPIRED", "queue:late"): len(truth.ids("late")),
    }


def test_reconcile_proves_a_clean_window(proof: Proof) -> None:
    rows = proof.reconciled("--until", proof.truth.clean_until)
    assert Counter(row.link for row in rows) == {f"proof/{link}": CLEAN for link in LINKS}
    assert {row.id for row in rows} == {
        id for id, fate in proof.truth.fates.items() if fate.body.startswith("clean")
    } - set(proof.truth.ids("within.out") | proof.truth.ids("back.out"))
    assert {row.outcome for row in rows} == {"arrived"}


def test_reconcile_finds_what_was_lost_and_doubled_and_nothing_else(proof: Proof) -> None:
    truth = proof.truth
    rows = proof.reconciled(code=1)
    assert Counter(row.link for row in rows) == {f"proof/{link}": CLEAN + FAULTY for link in LINKS}
    assert _named(rows, lambda row: row.outcome == "lost") == truth.ids("most.in", outcome="lost")
    assert len(truth.ids("most.in", outcome="lost")) == len(LOST)
    assert _named(rows, lambda row: row.outcome == "buried") == truth.ids("out.in", "poison")
    assert {row.outcome for row in rows} == {"arrived", "buried", "lost"}
    assert _named(rows, lambda row: row.doubled) == truth.twice["back"] | truth.twice["twice"]
    assert not [row for row in rows if row.possibly_doubled and not row.doubled]
    # What a transformer does is no alteration.
    assert _named(rows, lambda row: row.changed) == truth.ids("out.in", "change")
    assert not [row for row in rows if row.altered or row.late]
    assert not [row for row in rows if row.reordered == "by the link"]
    # Each of the two is enough for a no, and may be allowed.
    proof.reconciled("--link", "proof/back", code=1)
    proof.reconciled("--link", "proof/back", "--link", "proof/twice", "--duplicates-ok")


def test_what_was_taken_and_changed_at_the_targets_is_seen_there_only(proof: Proof) -> None:
    truth, rig = proof.truth, proof.rig
    taken, changed = rig.taken_at_the_target(), rig.changed_at_the_target()
    near, far = rig.arguments("target-"), rig.arguments("target-", far=True)
    rows = proof.reconciled("--link", "proof/within", "--browse-target", *near, table="target")
    assert {truth.fates[row.id].body for row in rows if row.altered_there} == {changed}
    assert Counter((row.known_by, row.lies) for row in rows) == {("id", 1): CLEAN + FAULTY}
    links = [word for link in ("out", "twice", "most") for word in ("--link", f"proof/{link}")]
    rows = proof.reconciled(*links, "--browse-target", *far, code=1, table="target")
    assert not [row for row in rows if row.altered_there]
    gone = {row.id for row in rows if not row.lies}
    lost = truth.ids("most.in", outcome="lost")
    assert lost < gone
    assert sorted(truth.fates[id].body for id in gone - lost) == sorted(taken)
    # A STOMP target does not say which ids it gives: there messages are known by their bodies.
    twice = truth.twice["twice"]
    assert {row.id for row in rows if row.lies == 2} == twice
    assert Counter((row.link, row.known_by, row.lies) for row in rows if row.lies) == {
        ("proof/out", "id", 1): CLEAN + FAULTY - POISON - len(taken),
        ("proof/twice", "body", 1): CLEAN + FAULTY - len(twice),
        ("proof/twice", "body", 2): len(twice),
        ("proof/most", "body", 1): CLEAN + FAULTY - len(LOST),
    }


def test_what_was_poison_is_replayed_once_the_transformer_is_mended(
    proof: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, plan, ledger = proof.rig, proof.folder / "plan", proof.folder / "ledger"
    before = Counter(rig.far_bodies("out.out"))
    poison = {proof.truth.fates[id].body for id in proof.truth.ids("out.in", "poison")}
    assert not poison & before.keys()
    words: Sequence[object] = (
        "replay",
        "--queue",
        BRIDGE_DMQ,
        "--where",
        "reason = 'TRANSFORM_FAILURE'",
        "--plan",
        plan,
    )
    assert main([*map(str, words), "--ledger", str(ledger), *rig.arguments()]) == 0
    for _ in range(2):
        assert (
            main(["replay", "--approve", str(plan), "--ledger", str(ledger), *rig.arguments()[2:]])
            == 0
        )
    # What is sent later arrives later.
    rig.gateway.until_link(
        "out",
        lambda told: told["counters"]["acknowledged"] >= POISON and not told["in_flight"],
        "replayed",
    )
    until(lambda: not rig.browsed("out.in"), "the link has not taken all")
    after = Counter(rig.far_bodies("out.out"))
    assert after - before == dict.fromkeys(poison, 1)
    assert len(rig.browsed(BRIDGE_DMQ)) == POISON + len(proof.truth.twice["back"])


def test_an_archive_has_what_lies_in_the_queue(proof: Proof) -> None:
    folder = proof.folder / "archive"
    for _ in range(2):
        assert main(["archive", "kept", str(folder), *proof.rig.arguments()]) == 0
    rows = DeltaFolder(proof.spark, str(folder)).frame().collect()
    lying = {frame.headers["message-id"]: frame.body for frame in proof.rig.browsed("kept")}
    assert {row.message_id: bytes(row.body) for row in rows} == lying
    assert len(rows) == len(lying) == len(proof.truth.ids("kept"))
    assert all(row.persistent and row.destination == "queue:kept" for row in rows), rows[0]


def _named(rows: Sequence[Any], wanted: Any) -> set[str]:
    return {row.id for row in rows if wanted(row)}


def _counted(rows: Sequence[Any], *columns: str) -> dict[tuple[object, ...], int]:
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        found[tuple(row[name] for name in columns)] += row["count"]
    return dict(found)


def _difference(found: dict[str, Any], fates: dict[str, Any]) -> str:
    more = [found[id] for id in found.keys() - fates.keys()][:3]
    return (
        f"unknown: {more}; missing: {[(id, fates[id]) for id in fates.keys() - found.keys()][:10]}"
    )
