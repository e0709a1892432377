"""Backups of an instance with transaction logs of bridges."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import dbmgr, store_copies
from gateway.broker.store.integrity import opening
from gateway.broker.store.interface import BranchRow, StoreError
from gateway.instance.layout import Layout
from tests.gateway.decision_logs import BRIDGE, InFile, entry


def no_work(row: BranchRow) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The store of these tests has no branches."""
    return (), ()


def agreed(question: str) -> None:
    """The answer is yes."""


class Instance:
    """An instance with a store and one bridge's log."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "var", "one")
        self.layout.create()
        opening.create(str(self.layout.messages), "aa" * 8)
        self.log = InFile(self.layout.bridge(BRIDGE))
        self.folder = folder / "backup"

    def decide(self, *numbers: int) -> None:
        """Open the log, also one beside the messages; decide; close it."""
        beside = self.layout.store / self.log.path.name
        if beside.exists():
            beside.rename(self.log.path)
        file = self.log.open()
        for number in numbers:
            file.write([entry(number)], sync=True)
        file.close()

    def decided(self) -> tuple[object, ...]:
        found = store_copies._logs(self.layout).get(BRIDGE)
        return () if found is None else tuple(found._contents.entries)

    def back_up(self) -> str:
        return store_copies.backup(self.layout, self.folder, no_work)

    def restore(self) -> str:
        return store_copies.restore(self.layout, self.folder, no_work, agreed)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def test_a_log_is_a_part_of_a_backup(instance: Instance) -> None:
    instance.decide(1, 2)
    assert instance.back_up().endswith(f"the bridges: {BRIDGE} (2 unfinished).")
    instance.log.path.unlink()
    said = instance.restore()
    assert said.endswith(f"The transaction logs of these bridges go on: {BRIDGE} (2 unfinished).")
    assert instance.decided() == (entry(1), entry(2))
    # It goes on where a bridge expects it.
    instance.decide(3)
    assert instance.decided() == (entry(1), entry(2), entry(3))


def test_a_log_that_has_not_gone_on_stays(instance: Instance) -> None:
    instance.decide(1)
    instance.back_up()
    before = instance.log.path.read_bytes()
    assert "go on" not in instance.restore()
    assert instance.log.path.read_bytes() == before


def test_a_log_that_has_gone_on_is_not_replaced(instance: Instance) -> None:
    instance.decide(1)
    instance.back_up()
    instance.decide(2)
    store = instance.layout.messages.read_bytes()
    with pytest.raises(StoreError, match=f"bridge {BRIDGE} has two transaction logs") as refused:
        instance.restore()
    assert f"'imqdbmgr remove jmsbridge -n {BRIDGE}'" in str(refused.value)
    assert instance.layout.messages.read_bytes() == store
    (instance.folder / instance.log.path.name).unlink()
    instance.restore()
    assert instance.decided() == (entry(1), entry(2))


def test_beside_a_gateway_that_runs_the_copy_may_be_out_of_date(instance: Instance) -> None:
    instance.decide(1)
    with instance.layout.lock():
        said = instance.back_up()
    assert "The gateway ran meanwhile: where these logs go on" in said


def test_a_log_that_is_there_already_is_refused(instance: Instance) -> None:
    instance.decide(1)
    instance.folder.mkdir()
    (instance.folder / instance.log.path.name).write_bytes(b"")
    with pytest.raises(StoreError, match="is there already: move it away"):
        instance.back_up()
    assert not (instance.folder / "messages.db").exists()


def test_a_damaged_log_is_named(instance: Instance) -> None:
    instance.decide(1)
    instance.log.damage(10)
    with pytest.raises(StoreError, match=f"txlog.{BRIDGE}"):
        instance.back_up()
    assert not (instance.folder / "messages.db").exists()


def test_a_store_that_is_lost_is_restored(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    instance.back_up()
    instance.layout.messages.unlink()
    words = ("-varhome", str(instance.layout.varhome), "-i", "one", "-dir", str(instance.folder))
    assert dbmgr.run(["restore", "-f", *words]) == 0
    assert capsys.readouterr().out == (
        f"{instance.layout.messages} has all that {instance.folder / 'messages.db'} has: 0 messages.\n"
    )
    assert dbmgr.run(["check", *words[:4]]) == 0
