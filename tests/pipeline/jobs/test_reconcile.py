"""Links of a real gateway, to its own broker and to ActiveMQ, against what their journal proves of
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.journal.chain import Chain, verify
from pipeline.command import main
from pipeline.connection import Connection
from pipeline.errors import PipelineError
from pipeline.output import Output
from pipeline.tables.delta import DeltaFolder
from tests.documented_blocks import shown
from tests.faults.linked_gateway import KINDS, LinkedGateway, linked_gateway
from tests.pages import printed
from tests.pipeline import linked
from tests.pipeline.test_statement import written

pytestmark = pytest.mark.brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT: Final = 40


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LinkedGateway]:
    made = linked_gateway(tmp_path)
    with made.gateway:
        yield made


def connection(running: LinkedGateway, folder: Path) -> Connection:
    passcode = folder / "passcode"
    passcode.write_text("guest")
    return Connection(
        {"port": str(running.gateway.port), "login": "guest", "passcodeFile": str(passcode)}
    )


def reconciled(
    spark: SparkSession, folder: Path, paths: Sequence[Path], **wanted: Any
) -> tuple[bool, dict[str, Any], list[Any]]:
    """What the job says: whether all agrees, a row for each link by its name, and a row for each
    message.
    """
    from pipeline.jobs.reconcile import Wanted, run

    out = folder / "reconciled"
    agrees, summary = run(spark, [str(path) for path in paths], Output(str(out)), Wanted(**wanted))
    assert summary.facts["messages"]
    rows = {row.link: row for row in DeltaFolder(spark, str(out / "links")).frame().collect()}
    return agrees, rows, DeltaFolder(spark, str(out / "messages")).frame().collect()


def test_links_of_every_kind_are_proved_to_have_moved_everything(
    spark: SparkSession, running: LinkedGateway, tmp_path: Path
) -> None:
    ordinary = [f"{number}" for number in range(COUNT)]
    odd = [f"{KINDS[number % 4]} {number}" for number in range(COUNT)]
    for name in running.links:
        running.send(name, odd if name.startswith("odd") else ordinary, kind="x")
    for name in running.links:
        running.until_acknowledged(name, COUNT)
    running.gateway.restart()
    agrees, rows, messages = reconciled(spark, tmp_path, [running.journal], late=600)
    assert agrees, rows
    assert set(rows) == {f"proof/{name}" for name in running.links}
    quarter = COUNT // 4
    for name in ("odd", "oddonce"):
        row = rows[f"proof/{name}"]
        assert (row.arrived, row.buried, row.not_transferred) == (2 * quarter, quarter, quarter)
        assert (row.transformed, row.changed_by_transformer) == (3 * quarter, quarter)
    for name, transacted in {"plain": False, "once": True, "jms": False, "stomp": False}.items():
        row = rows[f"proof/{name}"]
        assert (row.arrived, row.messages, row.transacted) == (COUNT, COUNT, transacted)
    assert not [row for row in messages if row.reordered or row.altered or row.doubled or row.late]
    here = ["proof/plain", "proof/once"]
    assert reconciled(
        spark, tmp_path, [running.journal], links=here, browse=connection(running, tmp_path)
    )[0]
    target = DeltaFolder(spark, str(tmp_path / "reconciled" / "target")).frame().collect()
    assert Counter(
        (row.link, row.lies, row.known_by, row.altered_there) for row in target
    ) == dict.fromkeys([(link, 1, "id", False) for link in here], COUNT)


def test_what_a_killed_gateway_has_moved_is_proved(
    spark: SparkSession, running: LinkedGateway, tmp_path: Path
) -> None:
    names, sent = ("plain", "once"), 0
    for round in range(3):
        for name in names:
            running.send(name, [f"{round}-{number}" for number in range(COUNT)])
        sent += COUNT
        running.gateway.until_link(
            "plain", lambda told: told["counters"]["acknowledged"] > COUNT // 3, "some are moved"
        )
        running.gateway.restart(crash=True)
    for name in names:
        running.until_at_rest(name)
    arrived = {name: running.everything(name) for name in names}
    running.gateway.terminate()
    _, rows, messages = reconciled(spark, tmp_path, [running.journal], duplicates_ok=True)
    for name in names:
        row = rows[f"proof/{name}"]
        assert (row.messages, row.lost, row.altered, row.reordered) == (sent, 0, 0, 0)
        # What is in doubt is so for the end of a run, and for no other reason.
        doubts = {
            one.doubt
            for one in messages
            if one.link == f"proof/{name}" and one.outcome == "in doubt"
        }
        assert doubts <= {"the gateway ended"}
        assert len(set(arrived[name])) == sent
    twice = len(arrived["plain"]) - sent
    assert (
        rows["proof/plain"].doubled
        <= twice
        <= rows["proof/plain"].doubled + rows["proof/plain"].possibly_doubled
    )
    assert (len(arrived["once"]), rows["proof/once"].doubled) == (sent, 0)


# --- the job


def test_the_exit_code_is_1_if_it_cannot_be_proved(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = linked.LinkJournal(tmp_path / "journal", 1)
    linked.moved(journal)
    linked.lost(journal)
    linked.doubled(journal)
    linked.moved(journal)
    journal.roll()
    lost = [id for id, outcome in journal.truth.outcomes.items() if outcome == "lost"]
    assert (
        main(
            [
                "reconcile",
                str(tmp_path / "journal"),
                "--output",
                str(tmp_path / "found"),
                "--format",
                "json",
            ]
        )
        == 1
    )
    said = capsys.readouterr().out
    assert "do not agree" in said
    facts, links, lost_ones = shown("pipeline_reconcile", "Reconciliation").split("\n\n")
    assert printed.has(said, facts), said
    for line in links.replace("orders/out", "bridge/lake").splitlines():
        assert printed.has(said, line), f"{line}\n{said}"
    for line in lost_ones.splitlines()[:2]:
        assert printed.has(said, line), f"{line}\n{said}"
    rows = [
        json.loads(line)
        for path in (tmp_path / "found" / "messages").glob("*.json")
        for line in path.open()
    ]
    assert sorted(row["id"] for row in rows if row["outcome"] == "lost") == sorted(lost)


def test_a_signed_statement_says_of_which_journal(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = tmp_path / "journal", tmp_path / "statement.json"
    journal = linked.LinkJournal(folder, 1)
    linked.moved(journal)
    journal.roll()
    Chain(folder).complete()
    written(tmp_path / "key.pem")
    asked = ["reconcile", str(folder), "--signed", str(tmp_path / "key.pem"), str(file)]
    assert main(asked) == 0
    said = json.loads(file.read_bytes())
    assert said["agrees"] is True
    assert said["read"][0]["head"] == verify(folder).head
    assert said["facts"]["messages"] == len(journal.truth.outcomes)
    [segment] = folder.glob("*.jsonl")
    segment.write_bytes(segment.read_bytes() + b"\n")
    assert main(asked) == 1
    assert "segments of the journal are not as they were chained" in capsys.readouterr().out
    assert json.loads(file.read_bytes())["agrees"] is False


def test_doubled_messages_may_be_allowed(spark: SparkSession, tmp_path: Path) -> None:
    journal = linked.LinkJournal(tmp_path / "journal", 1)
    linked.doubled(journal)
    linked.moved(journal)
    journal.roll()
    assert reconciled(spark, tmp_path, [tmp_path / "journal"])[0] is False
    assert reconciled(spark, tmp_path, [tmp_path / "journal"], duplicates_ok=True)[0] is True


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (
            {"links": ["lake"]},
            "nothing in .* of link lake in that time: expected a link as BRIDGE/LINK",
        ),
        ({"since": "2030-01-01"}, "nothing in .* of any link in that time"),
        ({"since": "soon"}, "--since soon: expected a time in UTC"),
    ],
)
def test_what_cannot_be_answered_is_one_clear_line(
    spark: SparkSession, tmp_path: Path, wanted: Any, expected: str
) -> None:
    journal = linked.LinkJournal(tmp_path / "journal", 1)
    linked.moved(journal)
    journal.roll()
    with pytest.raises(PipelineError, match=expected):
        reconciled(spark, tmp_path, [tmp_path / "journal"], **wanted)
