"""``imqcmd bench`` against a gateway that runs as a process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.cli import imqcmd
from gateway.admin.cli.bench_load import Histogram
from tests.conformance.client import Client
from tests.gateway.admin.live import Live

pytestmark = pytest.mark.process
FILES: dict[str, str] = {}


def bench(live: Live, *options: str, code: int = 0) -> str:
    live.capsys.readouterr()
    ended = imqcmd.run(["bench", "-duration", "1", *options, *live.options])
    out, err = live.capsys.readouterr()
    assert ended == code, out + err
    return err if code else out


def imq(live: Live, *arguments: str) -> Any:
    live.capsys.readouterr()
    assert imqcmd.run([*arguments, *live.options, "--json", "-f"]) == 0
    return json.loads(live.capsys.readouterr().out)


def names(live: Live) -> set[str]:
    return {each["name"] for each in imq(live, "list", "dst")["destinations"]}


@pytest.mark.parametrize(
    "options",
    [
        ("-persistent", "-producers", "2", "-consumers", "2", "-ack", "client-individual"),
        ("-t", "t", "-consumers", "2", "-window", "0", "-ack", "client", "-size", "0"),
        ("-consumers", "0", "-size", "100000", "-window", "3"),
    ],
)
def test_all_that_is_sent_is_received_and_nothing_stays(
    live: Live, options: tuple[str, ...]
) -> None:
    before = names(live)
    found = json.loads(bench(live, *options, "--json"))
    copies = {"-t": 2, "-consumers": 0}.get(options[0], 1)
    assert found["sent"] > 10
    assert found["received"] == found["sent"] * copies
    assert (found["not_received"], found["error_count"]) == (0, 0)
    assert found["latency_us"]["count"] == found["received"]
    assert found["receipt_us"]["count"] == (0 if "0" in options[4:6] else found["sent"])
    if copies:
        measured = [found["latency_us"][name] for name in ("p50", "p99", "longest")]
        assert 0 < measured[0] <= measured[1] <= measured[2]
    assert names(live) == before


def test_what_others_use_is_refused(live: Live) -> None:
    client = Client(live.gateway.port)
    client.connect()
    client.put("/queue/theirs", "a message")
    refused = bench(live, "-n", "theirs", code=1)
    assert "queue:theirs has 1 messages of others" in refused
    assert imq(live, "query", "dst", "-t", "q", "-n", "theirs")["messages"] == 1
    client.ask("DISCONNECT")


def test_an_empty_destination_is_used_and_left_empty(live: Live) -> None:
    imq(live, "create", "dst", "-t", "q", "-n", "empty")
    shown = bench(live, "-n", "empty", "-consumers", "0")
    assert "Destination             queue:empty" in shown
    assert "until its receipt" in shown
    assert imq(live, "query", "dst", "-t", "q", "-n", "empty")["messages"] == 0


def test_errors_are_counted(live: Live) -> None:
    imq(live, "create", "dst", "-t", "q", "-n", "small", "-o", "maxNumMsgs=5")
    refused = bench(live, "-n", "small", "-consumers", "0", code=1)
    assert "small" in refused
    assert "expected a whole number of 1 to 1000" in bench(live, "-producers", "0", code=1)
    assert "expected auto, client" in bench(live, "-ack", "never", code=1)


@given(st.lists(st.integers(0, 10**8), min_size=1), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_a_percentile_is_exact_to_a_sixty_fourth(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    rank = max(0, -(-len(values) * int(percent) // 100) - 1)
    true = sorted(values)[rank]
    assert true <= histogram.percentile(percent) <= true + true / 64 + 1
    assert histogram.longest_us == max(values)
