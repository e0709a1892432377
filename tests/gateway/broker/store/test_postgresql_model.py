"""Random changes to the store in PostgreSQL, with lost sessions.

Other processes take the broker over.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from gateway.broker.store.interface import Recovered, Store, StoreFailed, StoreHeld
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    looking,
    postgresql_store,
)
from tests.gateway.broker.store.machine import StoreMachine

#: Seqs of a segment, as bits: few, so that there are many, that one row makes a sparse one, and
#: that rows are moved.
SHIFT = 2


class PostgresqlMachine(StoreMachine):
    """A crash is that another process takes the broker over.

    All that is submitted to this one is answered: it is committed, and the other finds it, or it
    has failed.
    """

    url: str
    lost = StoreFailed

    def make_place(self) -> None:
        self.database = database_at(self.url)
        create_tables(self.database)

    def made(self) -> Store:
        return postgresql_store(
            self.database,
            self.reactor.reactor,
            taking_seconds=0.0,
            shift=SHIFT,
            idle_seconds=0.001,
            beat_seconds=0.01,
        )

    def end(self) -> None:
        """Have the owner's session end, and do not wait for that."""
        with looking(self.database) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, owner"
                " WHERE application_name = owner.session"
            )

    @rule()
    def end_sessions(self) -> None:
        """Have the store lose its session, and make another one."""
        self.end()

    @rule()
    def idle(self) -> None:
        """Leave the store alone until its tables are maintained."""
        signs: list[float] = []
        self.store.on_owned = signs.append
        self.store.fetch([], lambda found: None)
        self.reactor.until(lambda: len(signs) > 2)
        self.store.on_owned = None

    def lose(self) -> Recovered:
        before, self.store = self.store, self.made()
        while True:
            # The other may be the first to get a session again.
            self.end()
            try:
                recovered = self.store.open()
            except StoreHeld:
                continue
            break
        self.reactor.until(lambda: self.reported + self.failed == len(self.states) - 1)
        self.reactor.close(before)
        return recovered

    def teardown(self) -> None:
        super().teardown()
        with looking(self.database) as session:
            session.execute(f"DROP SCHEMA {self.database.schema} CASCADE")


def run(url: str, examples: int, steps: int) -> None:
    class Machine(PostgresqlMachine):
        pass

    Machine.url = url
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )


def test_the_store_is_what_the_model_says(postgresql_database: str) -> None:
    run(postgresql_database, 25, 40)


@pytest.mark.long
def test_the_store_is_what_the_model_says_for_long(postgresql_database: str) -> None:
    run(postgresql_database, 400, 60)
