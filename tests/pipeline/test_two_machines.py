"""A link's messages after takeovers, by the journals of both machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.command import main
from pipeline.tables.delta import DeltaFolder
from tests.faults.links import BRIDGE, HERE, Link, written
from tests.faults.traffic import drain, produce
from tests.takeover.machines import Machines
from tests.takeover.test_takeover import create_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of each owner.
MESSAGES: Final = 200
OWNERS: Final = 3
#: That one process may leave so.
IN_DOUBT: Final = 50
ONCE: Final = Link("within", HERE, HERE, 5, "ONCE_AND_ONLY_ONCE")


def reconciled(
    spark: SparkSession, folder: Path, journals: Sequence[Path]
) -> tuple[int, list[Any]]:
    """The exit code, and a row for each message."""
    out = folder / f"reconciled-{len(journals)}"
    words = ["reconcile", *map(str, journals), "--link", f"{BRIDGE}/{ONCE.name}"]
    code = main([*words, "--output", str(out)])
    return code, DeltaFolder(spark, str(out / "messages")).frame().collect()


def test_reconcile_accounts_for_each_message_by_the_journals_of_both(
    spark: SparkSession, postgresql_database: str, tmp_path: Path
) -> None:
    create_tables(postgresql_database)
    file = tmp_path / f"{BRIDGE}.xml"
    file.touch(mode=0o600)
    file.write_text(written([ONCE]))
    settings = {
        "imq.bridge.activelist": f"stomp,{BRIDGE}",
        f"imq.bridge.{BRIDGE}.type": "jms",
        f"imq.bridge.{BRIDGE}.xmlurl": str(file),
    }
    machines = Machines(tmp_path, postgresql_database, "first", "second")
    for machine in machines.all:
        machine.settings |= settings
    with ExitStack() as ending:
        ending.enter_context(machines)
        owner = machines.owner
        for turn in range(OWNERS):
            if turn:
                owner.kill()
                before, (owner, _) = owner, machines.until_taken_over(owner)
                before.begin()
            first = turn * MESSAGES + 1
            produce(owner.port, ONCE.source_queue, first, first + MESSAGES - 1)
        last = OWNERS * MESSAGES
        numbers = drain(owner.port, ONCE.target_queue, last)
        assert numbers == list(range(1, last))
        for machine in machines.all:
            assert machine.terminate() == 0
        journals = [machine.directory / "journal" for machine in machines.all]
        assert all(list(journal.glob("*.jsonl")) for journal in journals)
        code, rows = reconciled(spark, tmp_path, journals)
        assert len(rows) == last
        assert not [row for row in rows if row.doubled or row.altered or row.reordered]
        # A process that is killed takes the lines of its last hundredths of a second with it: of
        # what arrived in that time it is said that it cannot be known, and why.
        outcomes = Counter((row.outcome, row.doubt) for row in rows)
        doubted = outcomes.pop(("in doubt", "the gateway ended"), 0)
        assert outcomes == {("arrived", None): last - doubted}
        assert doubted <= IN_DOUBT * (OWNERS - 1)
        assert code == (1 if doubted else 0)
        # One machine's alone has its own only, and may end in the middle of a batch, or of what was
        # sent to it: the next owner goes on.
        code, alone = reconciled(spark, tmp_path, journals[1:])
        assert code in (0, 1)
        assert 0 < len(alone) < last
        assert {row.id for row in alone} < {row.id for row in rows}
