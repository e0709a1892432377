"""Destinations are values."""

from __future__ import annotations

from gateway.messaging.destination import Destination, Kind, Queue, Topic


def test_a_destination_is_equal_to_every_other_of_its_kind_and_name() -> None:
    assert Queue("a") == Queue("a")
    assert hash(Queue("a")) == hash(Queue("a"))
    assert (
        len(
            {
                Queue("a"),
                Topic("a"),
                Destination(Kind.QUEUE, "a", True),
                Destination(Kind.TOPIC, "a", True),
                Queue("A"),
            }
        )
        == 5
    )


def test_the_kinds_have_the_numbers_of_the_store() -> None:
    assert (Queue("a").kind, Topic("a").kind) == (0, 1)
    assert not Queue("a").temporary


def test_its_text_is_that_of_table_12_1() -> None:
    assert str(Queue("orders")) == "queue:orders"
    assert str(Topic("news.*")) == "topic:news.*"
    assert str(Destination(Kind.QUEUE, "t", True)) == "queue:t"
