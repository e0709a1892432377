"""A plan is what was written, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import PipelineError
from pipeline.replay.plan import Plan, copy_plan, read_plan, write_plan

ROWS = [{"place": place, "key": f"k{place}", "target": "queue:ä"} for place in range(1, 4)]


def written(path: Path) -> Plan:
    return write_plan(path, {"where": "reason = 'X'"}, "2026-01-01", ROWS)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = written(tmp_path / "plan")
    assert (plan.messages, plan.request, plan.made) == (3, {"where": "reason = 'X'"}, "2026-01-01")
    assert read_plan(tmp_path / "plan") == plan
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_an_empty_one_is_a_plan(tmp_path: Path) -> None:
    assert read_plan(write_plan(tmp_path / "plan", {}, "", []).path).messages == 0


def test_a_plan_is_never_replaced(tmp_path: Path) -> None:
    written(tmp_path / "plan")
    before = (tmp_path / "plan").read_bytes()
    with pytest.raises(PipelineError, match="a plan is never replaced"):
        write_plan(tmp_path / "plan", {}, "", [])
    assert (tmp_path / "plan").read_bytes() == before


def test_two_that_write_one_plan_do_not_mix_it(tmp_path: Path) -> None:
    """One of them has it, whole, and the other is told."""

    def rows() -> Iterator[dict[str, Any]]:
        yield {"place": 1}
        written(tmp_path / "plan")
        yield {"place": 2}

    mine = tmp_path / "plan.part"
    mine.write_text("kept")
    with pytest.raises(PipelineError, match="a plan is never replaced"):
        write_plan(tmp_path / "plan", {}, "", rows())
    assert read_plan(tmp_path / "plan").messages == len(ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan", "plan.part"]
    assert mine.read_text() == "kept"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_is_noticed(data: st.DataObject, tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").path.read_bytes()
    (tmp_path / "whole").unlink()
    at = data.draw(st.integers(0, len(whole) - 1))
    octet = data.draw(st.integers(0, 255).filter(lambda octet: octet != whole[at]))
    changed = data.draw(
        st.sampled_from(
            [
                whole[:at],
                whole[:at] + bytes([octet]) + whole[at + 1 :],
                whole[:at] + b"\n" + whole[at:],
            ]
        )
    )
    (tmp_path / "plan").write_bytes(changed)
    # But for the line end of the last line and space in it, which say nothing.
    if changed.split() != whole.split():
        with pytest.raises(PipelineError):
            read_plan(tmp_path / "plan")


def test_what_is_no_plan_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        read_plan(tmp_path / "plan")
    for text, said in (("hello\n", "no plan of a replay"), ('{"plan":2}\n{}\n', "version 2")):
        (tmp_path / "plan").write_text(text)
        with pytest.raises(PipelineError, match=said):
            read_plan(tmp_path / "plan")


def test_a_copy_is_of_the_plan_that_was_read_or_there_is_none(tmp_path: Path) -> None:
    plan = written(tmp_path / "plan")
    copy = copy_plan(plan, tmp_path / "one")
    assert copy.read_bytes() == plan.path.read_bytes()
    other = write_plan(tmp_path / "other", plan.request, plan.made, ROWS[:2])
    other.path.replace(plan.path)
    with pytest.raises(
        PipelineError, match="was changed while it was carried out: nothing was sent"
    ):
        copy_plan(plan, tmp_path / "two")
    with pytest.raises(PipelineError, match=r"cannot be copied to .*one: File exists"):
        copy_plan(plan, tmp_path / "one")
