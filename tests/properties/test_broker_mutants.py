"""The model of the broker finds each verb of the core's changes that does not do its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from gateway.broker.core.changes import Changes
from tests.properties.test_broker import TOPIC, BrokerModel


def _nothing(self: Changes, *args: Any) -> None:
    """Not done at all."""


def _settle_only(self: Changes, source: Any, messages: Any, *args: Any) -> None:
    """Keep no dead message."""
    source.settle(messages)


def _discard_only(self: Changes, subscription: int, run: Any, spilled: Any) -> None:
    """Leave the rows."""
    for message in run:
        spilled.discard(message.seq)


def _at_random() -> None:
    run_state_machine_as_test(
        BrokerModel,
        settings=settings(
            max_examples=300,
            stateful_step_count=80,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _acknowledged() -> None:
    """A durable subscription has acknowledged what it was owed."""
    model = BrokerModel()
    try:
        model.begin()
        model.start_reader("one", 10)
        model.send(TOPIC, 3, True, 4, False, 0)
        model.steps()
        model.acknowledge("one", 100, False)
        model.everything_comes_to_rest()
    finally:
        model.teardown()


def _ended() -> None:
    """A subscription that is not durable ends while the store has the most of what waits there, and
    the others acknowledge theirs.
    """
    model = BrokerModel()
    try:
        model.begin()
        model.start_reader("now", 1)
        for _ in range(5):
            model.send(TOPIC, 8, False, 4, False, 0)
            model.steps()
        model.stop_reader("now")
        for name in ("one", "wild"):
            model.start_reader(name, 100)
            model.steps()
            while model.readers[name].outstanding:
                model.acknowledge(name, 100, False)
        model.everything_comes_to_rest()
    finally:
        model.teardown()


#: By its verb, what is wrong with it and where that is found.
MUTANTS: Final[dict[str, tuple[Callable[..., None], Callable[[], None]]]] = {
    "arrived": (_nothing, _at_random),
    "owed": (_nothing, _at_random),
    "spilled": (_nothing, _at_random),
    "spilled_for_subscription": (_nothing, _at_random),
    "fetch": (_nothing, _at_random),
    "retried": (_nothing, _at_random),
    "settled": (_nothing, _at_random),
    "settled_stored": (_nothing, _at_random),
    "settled_by_subscription": (_discard_only, _acknowledged),
    "settled_stored_by_subscription": (_nothing, _ended),
    "delete_slowly": (_nothing, _at_random),
    "buried": (_settle_only, _at_random),
}


@pytest.mark.parametrize("verb", MUTANTS)
def test_the_model_finds_a_verb_that_does_not_do_its_part(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, drive = MUTANTS[verb]
    if drive is not _at_random:
        drive()
    monkeypatch.setattr(Changes, verb, mutant)
    with pytest.raises((AssertionError, KeyError)):
        drive()
