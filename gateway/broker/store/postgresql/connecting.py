"""Sessions with the database, and what its errors mean.

Owns how a session is made and set up, for how long it waits for an answer, and which errors mean
that the session is of no use any more. Knows nothing of tables.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier
from psycopg.waiting import Ready, Wait

from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql.arrays import BigInts, BigIntsDumper, Octets, OctetsDumper

# It warns of errors at the end of a pipeline of which the first was raised already.
logging.getLogger("psycopg").setLevel(logging.ERROR)

#: What a session of ours is called where sessions are listed, before its own name.
NAME: Final = "stomp-gateway"

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Database:
    """How a database is reached, and which of its schemas is this broker's.

    :param conninfo: libpq's keywords and their values
        (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS); several
        hosts are tried in turn.
    :param described: where it is, for logs and errors; without secrets.
    :param schema: this broker's.
    :param cluster: the schema that brokers of a cluster share, "" without one.
    :param answer_seconds: after so long without an answer a session is taken for lost.
    :param connect_seconds: the same for each host while a session is made.
    """

    conninfo: Mapping[str, str] = field(repr=False)
    described: str
    schema: str
    answer_seconds: float = 10.0
    connect_seconds: int = 3
    cluster: str = ""

    def connect(self, session: str) -> Session:
        """Make a session.

        :param session: its name, at most 63 octets.
        :raises psycopg.Error: it cannot be made.
        """
        keywords: dict[str, Any] = {
            "target_session_attrs": "read-write",
            "connect_timeout": str(self.connect_seconds),
            "tcp_user_timeout": str(round(self.answer_seconds * 1000)),
            "keepalives_idle": "5",
            "keepalives_interval": "2",
            "keepalives_count": "3",
            **self.conninfo,
            "application_name": session,
            "client_encoding": "UTF8",
        }
        made = Session.connect(autocommit=True, prepare_threshold=2, **keywords)
        try:
            made.answer_seconds = self.answer_seconds
            made.prepared_max = 200
            made.adapters.register_dumper(BigInts, BigIntsDumper)
            made.adapters.register_dumper(Octets, OctetsDumper)
            with made.pipeline():
                made.execute(SQL("SET search_path = {}").format(Identifier(self.schema)))
                for setting in _SETTINGS:
                    made.execute(f"SET {setting}")
                made.execute(
                    # What is confirmed must be on the disk, whatever the server's default says.
                    "SELECT set_config('synchronous_commit', 'on', false) "
                    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
                )
        except BaseException:
            made.close()
            raise
        return made

    def unusable(self, error: psycopg.Error) -> StoreError:
        """For an error before the store was open."""
        return StoreError(f"the database {self.described}: {words(error)}")


def database_of(options: JdbcOptions) -> Database:
    """Return the database that the settings mean."""
    return Database(
        options.conninfo, options.described, options.schema, cluster=options.cluster_schema
    )


#: Of every session. Statements are few and known, and want the index always: tables that were
#: made a moment ago have no statistics. An operator's time limits are for others' statements.
_SETTINGS: Final = (
    "default_transaction_isolation = 'read committed'",
    "idle_in_transaction_session_timeout = '30s'",
    "statement_timeout = 0",
    "lock_timeout = 0",
    "tcp_user_timeout = 10000",
    "tcp_keepalives_idle = 5",
    "tcp_keepalives_interval = 2",
    "tcp_keepalives_count = 3",
    "jit = off",
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "plan_cache_mode = force_generic_plan",
)


class Session(psycopg.Connection[TupleRow]):
    """A session that does not wait for ever.

    :ivar answer_seconds: after so long without an answer it raises psycopg.OperationalError, and is
        of no use any more.
    """

    answer_seconds: float = 10.0

    def wait(
        self, gen: PQGen[_Result], interval: float = 0.0, timeout: float | None = None
    ) -> _Result:
        """Wait as psycopg does, but not longer than :attr:`answer_seconds`."""
        seconds = self.answer_seconds if timeout is None else timeout
        poll = select.poll()
        fileno = self.pgconn.socket
        try:
            waits = next(gen)
            while True:
                poll.register(fileno, _EVENTS[waits])
                ready = _ready(poll, seconds)
                if ready is None:
                    self.pgconn.finish()
                    # It has to clean up, which it cannot do later.
                    gen.throw(psycopg.OperationalError(f"no answer for {seconds:g} seconds"))
                    raise psycopg.OperationalError("the session was given up")
                waits = gen.send(ready)
        except StopIteration as stop:
            result: _Result = stop.value
            return result


_EVENTS: Final = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


def _ready(poll: select.poll, seconds: float) -> Ready | None:
    until = monotonic() + seconds
    while not (found := poll.poll(max(0.0, until - monotonic()) * 1000)):
        if monotonic() >= until:
            return None
    event = found[0][1]
    readable = Ready.R if event & ~select.POLLOUT else Ready.NONE
    writable = Ready.W if event & ~select.POLLIN else Ready.NONE
    return Ready(readable | writable)


class Meaning(Enum):
    """What an error of the database means for who has asked."""

    #: The session is of no use, and another one may be: what was asked may have been done.
    LOST = auto()
    #: There is no room; nothing was done.
    FULL = auto()
    #: Somebody else owns the broker; nothing was done.
    OVER = auto()
    #: What was asked is wrong; nothing was done, nor would it be the next time.
    REFUSED = auto()


#: Classes of SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html) that say
#: that a statement is wrong: of no use, what it is about, data, constraints, names and rights, limits.
_REFUSED: Final = ("0A", "21", "22", "23", "28", "3D", "3F", "42", "54", "XX00")


def meaning(error: psycopg.Error) -> Meaning:
    """What this error means.

    An unknown error means that the session is lost, so that what was asked is tried again.
    """
    state = error.sqlstate or ""
    if state == "MQ001":
        return Meaning.OVER
    if state == "53100":
        return Meaning.FULL
    if state.startswith(_REFUSED):
        return Meaning.REFUSED
    return Meaning.LOST


def words(error: psycopg.Error) -> str:
    """What the error says, in a line, with its SQLSTATE."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text} ({error.sqlstate})" if error.sqlstate else text
