"""The model of the broker finds each verb of the core's changes that does not do its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.broker.core.changes import Changes
from tests.properties.test_broker import QUEUE, TOPIC, BrokerModel


def _nothing(self: Changes, *args: Any) -> None:
    """Not done at all."""


def _settle_only(self: Changes, source: Any, messages: Any, *args: Any) -> None:
    """Keep no dead message."""
    source.settle(messages)


def _discard_only(self: Changes, subscription: int, run: Any, spilled: Any) -> None:
    """Leave the rows."""
    for message in run:
        spilled.discard(message.seq)


# More than memory has room for comes to the queue, or to the topic.


def _fill(model: BrokerModel, persistent: bool, topic: bool = False) -> None:
    for _ in range(5):
        model.send(TOPIC if topic else QUEUE, 8, persistent, 4, False, 0)
        model.steps()


def _acknowledge_all(model: BrokerModel, *names: str) -> None:
    for name in names:
        model.start_reader(name, 100)
        model.steps()
        while model.readers[name].outstanding:
            model.acknowledge(name, 100, False)


def _queue_read(model: BrokerModel) -> None:
    _fill(model, persistent=False)
    _acknowledge_all(model, "queue")


def _queue_stored_and_read(model: BrokerModel) -> None:
    _fill(model, persistent=True)
    _acknowledge_all(model, "queue")


def _queue_removed(model: BrokerModel) -> None:
    _fill(model, persistent=True)
    model.queue_is_removed()


def _queue_returned(model: BrokerModel) -> None:
    _fill(model, persistent=True)
    model.start_reader("queue", 3)
    model.steps()
    model.stop_reader("queue")


def _queue_refused(model: BrokerModel) -> None:
    _fill(model, persistent=True)
    model.start_reader("queue individually", 3)
    model.steps()
    model.reject("queue individually", 0, None, True)


def _topic_read(model: BrokerModel) -> None:
    _fill(model, persistent=True, topic=True)
    _acknowledge_all(model, "one", "wild")


def _subscription_ended(model: BrokerModel) -> None:
    model.start_reader("now", 1)
    _fill(model, persistent=False, topic=True)
    model.stop_reader("now")
    _acknowledge_all(model, "one", "wild")


#: By its verb, what is wrong with it and when that is found.
MUTANTS: Final[dict[str, tuple[Callable[..., None], Callable[[BrokerModel], None]]]] = {
    "store_arrivals": (_nothing, _queue_returned),
    "store_owed": (_nothing, _topic_read),
    "store_spilled": (_nothing, _queue_read),
    "store_spilled_for_subscription": (_nothing, _subscription_ended),
    "fetch": (_nothing, _queue_read),
    "store_attempts": (_nothing, _queue_returned),
    "delete_rows": (_nothing, _queue_stored_and_read),
    "delete_rows_by_seq": (_nothing, _queue_removed),
    "release_for_subscription": (_discard_only, _topic_read),
    "release_for_subscription_by_seq": (_nothing, _subscription_ended),
    "delete_slowly": (_nothing, _queue_removed),
    "bury": (_settle_only, _queue_refused),
}


def run(steps: Callable[[BrokerModel], None]) -> None:
    model = BrokerModel()
    try:
        model.begin()
        steps(model)
        model.everything_comes_to_rest()
        model.counts_agree()
        model.nothing_failed()
    finally:
        model.teardown()


@pytest.mark.parametrize("verb", MUTANTS)
def test_the_model_finds_a_verb_that_does_not_do_its_part(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, steps = MUTANTS[verb]
    run(steps)
    monkeypatch.setattr(Changes, verb, mutant)
    with pytest.raises((AssertionError, KeyError)):
        run(steps)
