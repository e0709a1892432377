"""Consumers that come before others: consumer priorities.

The consumers of a place with the highest priority get its messages as long as they have room. Those
of the next are given what these have no room for, or do not want. Among those of one priority it is
as among all where no consumer has one.

A place looks here only while one of its consumers has a priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.broker.core.consumers.consumer import EmbeddedConsumer

#: Below the priority of any consumer.
LOWEST: Final = -(1 << 62)


def has_ranks(consumers: Sequence[EmbeddedConsumer]) -> bool:
    """Whether not all of these have the same priority."""
    return len({consumer.spec.priority for consumer in consumers}) > 1


def highest(consumers: list[EmbeddedConsumer]) -> list[EmbeddedConsumer]:
    """Return those of the highest priority among these, in their order."""
    if len(consumers) < 2:
        return consumers
    most = max([consumer.spec.priority for consumer in consumers])
    return [consumer for consumer in consumers if consumer.spec.priority == most]


def by_rank(consumers: Sequence[EmbeddedConsumer]) -> list[EmbeddedConsumer]:
    """Return these by priority, the highest first, else in their order."""
    return sorted(consumers, key=lambda consumer: -consumer.spec.priority)


def peers(
    consumer: EmbeddedConsumer, consumers: Sequence[EmbeddedConsumer]
) -> list[EmbeddedConsumer]:
    """Return those of the same priority."""
    return [each for each in consumers if each.spec.priority == consumer.spec.priority]
