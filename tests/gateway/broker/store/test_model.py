"""Random changes to the store in a file, with crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from gateway.broker.store.interface import Recovered, Store
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.machine import StoreMachine


class SqliteMachine(StoreMachine):
    """A crash is that the files are taken while batches are on their way."""

    def make_place(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.generation = 0

    def made(self) -> Store:
        self.path = self.folder / f"{self.generation}.db"
        return SqliteStore(str(self.path), self.reactor.reactor, reserve_octets=0, idle_seconds=600)

    def lose(self) -> Recovered:
        # Those that are reported while the store is closed may not be in the files.
        reported = self.reported
        before = self.path
        self.generation += 1
        after = self.folder / f"{self.generation}.db"
        # The database changes at checkpoints only, and there are none while this runs; the log may
        # be cut anywhere.
        shutil.copy(before, after)
        shutil.copy(f"{before}-wal", f"{after}-wal")
        self.reactor.close(self.store)
        before.unlink()
        self.reported = reported
        self.store = self.made()
        return self.store.open()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def test_the_store_is_what_the_model_says() -> None:
    run_state_machine_as_test(
        SqliteMachine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )


@pytest.mark.long
def test_the_store_is_what_the_model_says_for_long() -> None:
    run_state_machine_as_test(
        SqliteMachine, settings=settings(max_examples=400, stateful_step_count=60, deadline=None)
    )
