"""Pages of destinations: the same as sorting them all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.broker.operator import paging
from gateway.broker.operator.paging import Paging, Wanted
from gateway.broker.operator.views import DestinationView
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.stepped_broker import Stepped, texts

NAMES = st.lists(
    st.tuples(
        st.sampled_from([Queue, Topic]), st.text("abAB.", min_size=1, max_size=4), st.integers(0, 3)
    ),
    max_size=12,
    unique_by=lambda each: each[:2],
)


def pages(stepped: Stepped) -> Paging:
    return Paging(stepped.provider, list, dict)


def made(folder: Path, what: list[tuple[Any, str, int]]) -> Stepped:
    stepped = Stepped(folder, BrokerOptions(reap_time=10))
    for kind, name, messages in what:
        destination: Destination = kind(name)
        outcome(stepped, administration(stepped).create(destination.kind.name.lower(), name, {}))
        if kind is Queue:
            stepped.send(texts(destination, ["x"] * messages))
    return stepped


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    NAMES,
    st.text("abA", max_size=1),
    st.sampled_from(["", "queue", "topic"]),
    st.sampled_from(["", "messages", "octets", "in"]),
    st.integers(0, 6),
    st.integers(1, 5),
)
def test_a_page_is_a_part_of_all_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    what: list[tuple[Any, str, int]],
    text: str,
    kind: str,
    order: str,
    first: int,
    count: int,
) -> None:
    stepped = made(tmp_path_factory.mktemp("paging"), what)
    every: list[DestinationView] = []
    outcome(stepped, administration(stepped).list_destinations(every.append, "", True))
    matching = [
        each for each in every if text.lower() in each.name.lower() and kind in ("", each.type)
    ]
    keys: dict[str, Callable[[DestinationView], int]] = {
        "": lambda each: 0,
        "messages": lambda each: -each.messages,
        "octets": lambda each: -each.octets,
        "in": lambda each: -each.messages_in,
    }
    matching.sort(key=lambda each: (keys[order](each), each.type, each.name))
    with pytest.MonkeyPatch.context() as patch:
        # As if there were very many.
        patch.setattr(paging, "PART", 2)
        page = outcome(
            stepped, pages(stepped).destinations(Wanted(text, kind, order, True, first, count))
        )
    assert (page.matched, page.total) == (len(matching), len(every))
    assert [(each.type, each.name) for each in page.rows] == [
        (each.type, each.name) for each in matching[first : first + count]
    ]


def test_what_may_be_wrong_is_found(tmp_path: Path) -> None:
    stepped = made(tmp_path, [(Queue, "idle", 3), (Queue, "held", 3), (Queue, "well", 0)])
    admin = administration(stepped)
    outcome(stepped, admin.create("queue", "full", {"maxNumMsgs": "2"}))
    stepped.send(texts(Queue("full"), ["x", "x"]))
    inbox = stepped.receive(stepped.session(Mode.CLIENT), Queue("held"), credit=1)
    stepped.receive(stepped.session(Mode.CLIENT), Queue("full"), credit=1000)
    found = outcome(stepped, pages(stepped).survey())
    assert [each.name for each in found.idle] == ["idle"]
    assert [each.name for each in found.stuck] == ["held"]
    assert [each.name for each in found.full] == ["full"]
    assert (found.totals.messages, found.counts["idle"], list(found.paused)) == (8, 1, [])
    [consumer], count = pages(stepped).consumers("queue", "held")
    assert (consumer.credit, consumer.unacknowledged, count) == (0, 1, 1)
    assert inbox is not None
