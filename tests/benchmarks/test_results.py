"""Medians, ratios, goals and what of them is printed and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import results, table
from benchmarks.cell import Row
from benchmarks.cells import full, quick, select
from benchmarks.goals import (
    AtLeast,
    AtLeastUnlessLimited,
    AtMost,
    Below,
    CostsAtMost,
    Goal,
    NearTheLimit,
    NoneLost,
    PureLevelWith,
    Reaches,
    Standing,
)
from benchmarks.measurement import Measurement, failed, percentiles
from benchmarks.results import RowResult
from benchmarks.tally import Outcome

SERVERS = ("gateway", "ActiveMQ", "RabbitMQ")


def result(
    higher: bool = True, goals: tuple[Goal, ...] = (), **values: list[float | None]
) -> RowResult:
    row = RowResult("cell", Row("a row", "msg/s", higher, goals), SERVERS)
    for server, measured in values.items():
        for value in measured:
            row.add(server, Measurement(value, messages=1000))
    return row


def test_ratios_are_of_medians_and_above_one_where_the_first_is_better() -> None:
    rates = result(gateway=[100.0, 900.0, 300.0], ActiveMQ=[100.0, 90.0, 110.0], RabbitMQ=[600.0])
    assert rates.median("gateway") == 300
    assert rates.ratio("ActiveMQ") == 3
    assert rates.ratio("RabbitMQ") == 0.5
    times = result(higher=False, gateway=[2.0], ActiveMQ=[6.0], RabbitMQ=[1.0])
    assert times.ratio("ActiveMQ") == 3
    assert times.ratio("RabbitMQ") == 0.5


def test_a_repetition_that_failed_does_not_count_and_a_server_that_always_failed_has_no_ratio() -> (
    None
):
    row = result(gateway=[100.0, None, 300.0], ActiveMQ=[None], RabbitMQ=[50.0])
    assert row.median("gateway") == 200
    assert row.ratio("ActiveMQ") is None
    assert row.ratio("RabbitMQ") == 4


def test_losses_of_all_repetitions_are_added() -> None:
    row = result()
    row.add("gateway", Measurement(1.0, Outcome(lost=2, duplicated=1)))
    row.add("gateway", Measurement(2.0, Outcome(lost=3, disordered=4)))
    assert row.outcome("gateway") == Outcome(lost=5, duplicated=1, disordered=4)
    assert row.standing().missing == 6


@pytest.mark.parametrize(
    ("goal", "subject", "reached"),
    [
        (AtLeast(3.0, "ActiveMQ"), 300.0, True),
        (AtLeast(3.0, "ActiveMQ"), 299.0, False),
        (AtLeast(3.0, "Artemis"), 300.0, None),
        (AtLeast(1.0), 400.0, True),
        (AtLeast(1.0), 399.0, False),
        (Below(), 99.0, True),
        (Below(), 100.0, False),
        (AtMost(300, "MB", 1.048576), 286.0, True),
        (AtMost(300, "MB", 1.048576), 287.0, False),
        (Reaches(80, "%"), 80.0, True),
        (Reaches(80, "%"), 79.0, False),
        (Reaches(80, "%"), None, None),
        (Below(), None, None),
        (AtMost(1, "s"), None, None),
    ],
)
def test_goals(goal: Goal, subject: float | None, reached: bool | None) -> None:
    assert goal.reached(Standing(subject, {"ActiveMQ": 100.0, "RabbitMQ": 400.0})) is reached


def test_without_another_server_a_comparison_is_not_measured() -> None:
    for goal in (AtLeast(1.0), Below()):
        assert goal.reached(Standing(1.0, {})) is None


@pytest.mark.parametrize(
    ("subject", "ceiling", "reached", "limited"),
    [
        (800.0, None, True, False),
        (799.0, None, False, False),
        (799.0, 10_000.0, False, False),
        (799.0, 999.0, False, False),
        (799.0, 998.0, None, True),
        (300.0, 500.0, False, False),
        (450.0, 500.0, None, True),
        (None, 500.0, None, False),
    ],
)
def test_a_provider_that_is_the_limit_excuses_who_is_nearly_as_fast(
    subject: float | None, ceiling: float | None, reached: bool | None, limited: bool
) -> None:
    goal = AtLeastUnlessLimited(2.0)
    standing = Standing(subject, {"ActiveMQ": 100.0, "RabbitMQ": 400.0}, ceiling=ceiling)
    assert goal.reached(standing) is reached
    assert goal.limited(standing) is limited


def test_the_table_says_what_the_limit_is() -> None:
    row = result(goals=(AtLeastUnlessLimited(2.0),), ActiveMQ=[400.0])
    row.add("gateway", Measurement(450.0, ceiling=500.0))
    assert (
        "the provider is the limit; alone the provider does 500 and so never reaches it, of which this is 90 %"
        in table.block(row)
    )
    assert table.summary([row], {}).endswith("the provider is the limit")
    row.add("gateway", Measurement(50.0, ceiling=500.0))
    assert row.median("gateway") == 250
    assert (
        "MISSED, 0.625×, 69 % below it; alone the provider does 500 and so never reaches it, of which this is 50 %"
        in table.block(row)
    )
    assert (
        "MISSED: ≥ 2× the best, where the provider is not the limit (0.625×, 69 % below it)"
        in table.summary([row], {})
    )
    row.runs["gateway"] = [Measurement(900.0, ceiling=1500.0)]
    assert (
        "reached, 2.25×, 12 % above it; alone the provider does 1,500, of which this is 60 %"
        in table.block(row)
    )
    assert table.summary([row], {}).endswith("(2.25×, 12 % above it)")


@pytest.mark.parametrize(
    ("subject", "ceiling", "reached"),
    [(400.0, 500.0, True), (399.0, 500.0, False), (400.0, None, None), (None, 500.0, None)],
)
def test_a_share_of_the_limit(
    subject: float | None, ceiling: float | None, reached: bool | None
) -> None:
    assert (
        NearTheLimit(0.8, "a bare loop").reached(Standing(subject, {}, ceiling=ceiling)) is reached
    )


def test_the_table_says_what_share_of_the_limit_was_reached() -> None:
    row = result(goals=(NearTheLimit(0.8, "a bare loop"),))
    row.add("gateway", Measurement(400.0, ceiling=500.0))
    assert (
        "goal ≥ 80 % of a bare loop: reached, 80 %, just that; a bare loop does 500"
        in table.block(row)
    )
    row.runs["gateway"] = [Measurement(100.0, ceiling=500.0)]
    assert (
        "goal ≥ 80 % of a bare loop: MISSED, 20 %, 75 % below it; a bare loop does 500"
        in table.block(row)
    )
    assert "MISSED: ≥ 80 % of a bare loop" in table.summary([row], {})
    row.runs["gateway"] = [Measurement(400.0)]
    assert "goal ≥ 80 % of a bare loop: not measured" in table.block(row)


def test_notes_are_printed_below_the_figures() -> None:
    row = RowResult("cell", Row("a row", "msg/s", True, notes=("a sync each",)), SERVERS)
    row.add("gateway", Measurement(1.0))
    assert table.block(row).endswith("\n    a sync each")


@pytest.mark.parametrize(("missing", "reached"), [(0, True), (1, False), (None, None)])
def test_losses_miss_a_goal(missing: int | None, reached: bool | None) -> None:
    assert NoneLost().reached(Standing(1.0, {}, missing)) is reached


def test_goals_are_the_gateways() -> None:
    row = result(goals=(AtLeast(3.0, "ActiveMQ"),), gateway=[300.0], ActiveMQ=[100.0])
    assert [reached for _, reached in row.goals()] == [True]
    row.servers = ("ActiveMQ", "RabbitMQ")
    assert row.goals() == []


@pytest.mark.parametrize(
    ("goal", "distance"),
    [
        (AtLeast(4.0, "ActiveMQ"), "3×, 25 % below it"),
        (AtLeast(2.0), "1.5×, 25 % below it"),
        (AtLeast(2.0, "Artemis"), None),
        (NearTheLimit(0.8, "a loop"), "60 %, 25 % below it"),
        (Reaches(200, "msg/s"), "300 msg/s, 50 % above it"),
        (Reaches(300, "msg/s"), "300 msg/s, just that"),
        (AtMost(200, "MB", 2.0), "600 MB, 200 % above it"),
        (Below(), "3× the least, 200 % above it"),
        (CostsAtMost(5.0), "4 µs, 20 % below it"),
        (PureLevelWith("ActiveMQ"), "0.5×, 50 % below it"),
        (NoneLost(), None),
    ],
)
def test_a_goal_says_how_far_it_is(goal: Goal, distance: str | None) -> None:
    others = {"ActiveMQ": 100.0, "RabbitMQ": 200.0}
    standing = Standing(300.0, others, 0, ceiling=500.0, cost=4.0, pure=50.0)
    assert goal.distance(standing) == distance


def test_the_cost_of_a_message_is_a_goal_and_a_column() -> None:
    row = result(goals=(CostsAtMost(3.5),), gateway=[None], ActiveMQ=[100.0])
    for cost in (0.3, 0.4, 0.5):
        row.add("gateway", Measurement(200.0, server_cpu=cost))
    assert row.cost("gateway") == 4.0
    assert row.cost("ActiveMQ") is None
    assert "≤ 3.5 µs of processor time a message: MISSED, 4 µs, 14 % above it" in table.block(row)
    head, line = table.summary([row], {}).splitlines()[-2:]
    assert "gateway µs/msg" in head
    assert line.split()[:8] == ["a", "row", "msg/s", "200", "100", "-", "2×", "-"]


@pytest.mark.parametrize("first", ["gateway", "pure"])
@pytest.mark.parametrize(("higher", "reached"), [(True, False), (False, True)])
def test_the_gateway_in_pure_python_is_to_be_level_with_activemq(
    first: str, higher: bool, reached: bool
) -> None:
    row = result(higher, gateway=[400.0], pure=[50.0], ActiveMQ=[100.0], RabbitMQ=[900.0])
    row.servers = [first, *(name for name in ("gateway", "pure", *SERVERS[1:]) if name != first)]
    assert [each for goal, each in row.goals() if isinstance(goal, PureLevelWith)] == [reached]
    assert "pure" not in row.standing().others


def test_percentiles_are_values_of_the_sample() -> None:
    assert percentiles([number / 1000 for number in range(1, 1001)]) == (500.0, 990.0, 999.0)
    assert percentiles([0.005]) == (5.0, 5.0, 5.0)
    assert percentiles([]) is None


def test_the_table_says_ratios_losses_and_errors() -> None:
    row = result(
        goals=(AtLeast(3.0, "ActiveMQ"), NoneLost()),
        gateway=[182_000.0, 170_000.0, 190_000.0],
        ActiveMQ=[52_000.0],
    )
    row.add(
        "gateway",
        Measurement(
            180_000.0, Outcome(lost=7), messages=100, percentiles=(1.0, 22.0, 333.0), generator=0.25
        ),
    )
    row.add("RabbitMQ", failed(TimeoutError("nothing came")))
    text = table.block(row)
    assert "3.48×" in text
    assert "RabbitMQ: TimeoutError: nothing came" in text
    assert "goal ≥ 3× ActiveMQ: reached, 3.48×, 16 % above it" in text
    assert "goal none lost or twice: MISSED, 7 were" in text
    gateway = next(line.split() for line in text.splitlines() if line.split()[0] == "gateway")
    assert gateway == [
        "gateway",
        "181,000",
        "170,000",
        "190,000",
        "7",
        "0",
        "0",
        "-",
        "-",
        "1",
        "22",
        "333",
        "25",
        "-",
    ]
    assert "MISSED: none lost or twice (7 were)" in table.summary([row], {})
    assert "Others" not in table.summary([row], {})
    assert table.summary([], {}) == "nothing was measured"


def test_a_busy_machine_is_named() -> None:
    row = result(gateway=[1.0])
    row.runs["gateway"] = [Measurement(1.0, others=share) for share in (0.0, 1.25, 1.5)]
    assert "Others kept 125 % of a core busy" in table.summary([row], {})


def test_the_figures_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "results" / "run.json"
    results.write(path, [result(gateway=[300.0], ActiveMQ=[100.0])], {"repetitions": 1})
    kept = json.loads(path.read_text())
    assert kept["repetitions"] == 1
    assert kept["rows"][0]["times better than"] == {"ActiveMQ": 3.0, "RabbitMQ": None}
    assert kept["rows"][0]["runs"]["gateway"][0]["value"] == 300.0
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]


def test_cells_have_names_of_their_own_and_are_found_by_them() -> None:
    for cells in (quick(), list(full())):
        names = [cell.name for cell in cells]
        assert len(set(names)) == len(names)
    assert [cell.name for cell in select(["request-reply-1"])] == ["request-reply-1"]
    assert {cell.name for cell in select(["request-reply"])} == {
        "request-reply-1",
        "request-reply-10",
        "request-reply-100",
    }
    assert {cell.name for cell in select(["idle-*-5000", "start-up"])} == {
        "idle-tcp-5000",
        "idle-tls-5000",
        "start-up",
    }
    with pytest.raises(ValueError, match="no cell is called 'idel'"):
        select(["idel"])
