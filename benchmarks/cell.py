"""A cell of the matrix: its rows, and the work done to a server.

Knows no particular cell; those are in :mod:`benchmarks.cells` and :mod:`benchmarks.link_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.goals import Goal
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer


@dataclass(frozen=True)
class Timing:
    """All in seconds.

    :param warm_up: load before each measurement.
    :param seconds: length of each measurement.
    :param first: load that a freshly started server gets before its first measurement: a JVM
        compiles what it runs often.
    """

    warm_up: float = 0.5
    seconds: float = 1.5
    first: float = 20.0


@dataclass(frozen=True)
class Row:
    """One line of the table.

    :param title: what was done.
    :param unit: of the values.
    :param higher: whether more is better.
    :param notes: lines to print below its figures.
    """

    title: str
    unit: str
    higher: bool
    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()


class Work(Protocol):
    """What is done to one server in one repetition."""

    @property
    def alone(self) -> bool:
        """Whether it starts a server of its own over an empty folder."""

    @property
    def tls(self) -> bool:
        """Whether that server must listen with TLS as well."""

    @property
    def once(self) -> bool:
        """Whether one repetition must do, since it takes long."""

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        """One measurement for each row.

        :param name: not used before at this server, for its destinations.
        """


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix.

    :param name: for ``--only``, without spaces.
    :param rows: one for each measurement that the work gives.
    :param servers: what stands in for each server in this cell, by its name, such as one that has
        what the work needs; empty: the servers themselves. A server that is not in it is not
        measured.
    """

    name: str
    work: Work
    rows: tuple[Row, ...]
    servers: Mapping[str, type[Peer]] = field(default_factory=dict)
