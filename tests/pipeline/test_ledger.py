"""A ledger keeps what it was told whatever happens, and lets nobody write beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.ledger import FILE, State, exists, opened


def messages(*keys: str) -> list[dict[str, object]]:
    return [
        {
            "key": key,
            "twin": key,
            "message_id": f"ID:{key}",
            "target": "queue:a",
            "digest": "not kept",
        }
        for key in keys
    ]


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_records_are_appended_and_its_id_stays(tmp_path: Path) -> None:
    assert not exists(tmp_path / "l")
    with opened(tmp_path / "l", "first") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages("a", "b"))
    with opened(tmp_path / "l", "second") as ledger:
        ledger.append(State.SENT, 2, "plan", messages("a"))
        assert ledger.id == "first"
    assert exists(tmp_path / "l")
    assert lines(tmp_path / "l") == [
        {"ledger": 1, "id": "first"},
        {
            "state": "intended",
            "at": 1,
            "key": "a",
            "twin": "a",
            "message_id": "ID:a",
            "target": "queue:a",
            "plan": "plan",
        },
        {
            "state": "intended",
            "at": 1,
            "key": "b",
            "twin": "b",
            "message_id": "ID:b",
            "target": "queue:a",
            "plan": "plan",
        },
        {
            "state": "sent",
            "at": 2,
            "key": "a",
            "twin": "a",
            "message_id": "ID:a",
            "target": "queue:a",
            "plan": "plan",
        },
    ]


def test_a_record_that_a_crash_cut_short_is_dropped_at_every_place(tmp_path: Path) -> None:
    with opened(tmp_path, "x") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages("a", "b"))
    whole = (tmp_path / FILE).read_bytes()
    start = len(whole.splitlines(keepends=True)[0])
    for end in range(start, len(whole)):
        (tmp_path / FILE).write_bytes(whole[:end])
        with opened(tmp_path, "y") as ledger:
            ledger.append(State.SENT, 2, "plan", messages("c"))
            assert ledger.id == "x"
        assert [line.get("key") for line in lines(tmp_path)] == [
            None,
            *["a", "b"][: whole[start:end].count(b"\n")],
            "c",
        ]


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "x"),
        pytest.raises(PipelineError, match="another replay uses it"),
        opened(tmp_path, "y"),
    ):
        pass


@pytest.mark.parametrize("line", ["no json", "[]", '{"state":"sent"}', '{"ledger":1,"id":"z"}'])
def test_damage_is_refused_with_its_place(line: str, tmp_path: Path) -> None:
    with opened(tmp_path, "x") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages("a"))
    text = (tmp_path / FILE).read_text().splitlines()
    (tmp_path / FILE).write_text("\n".join([text[0], line, text[1], ""]))
    with pytest.raises(PipelineError, match="damaged in line 2"), opened(tmp_path, "y"):
        pass


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"ledger":2,"id":"x"}\n')
    with pytest.raises(PipelineError, match="has version 2"), opened(tmp_path, "y"):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PipelineError, match=r"--ledger .*file/l: "),
        opened(tmp_path / "file" / "l", "x"),
    ):
        pass


FULL = """
import resource, sys
from pathlib import Path
from pipeline.errors import PipelineError
from pipeline.ledger import State, opened
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
row = {"key": "k" * 100, "twin": "t", "message_id": "ID:1", "target": "queue:a"}
try:
    with opened(Path(sys.argv[1]), "x") as ledger:
        while True:
            ledger.append(State.INTENDED, 1, "plan", [row] * 3)
except PipelineError as error:
    sys.exit(str(error))
"""


@pytest.mark.process
@pytest.mark.parametrize("room", [10, 1_000])
def test_a_disk_without_room_is_one_line_and_what_was_said_to_be_there_is(
    room: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(room)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == f"the ledger {tmp_path / FILE} cannot be written: File too large\n"
    # Half of a record is no record.
    with opened(tmp_path, "y") as ledger:
        ledger.append(State.SENT, 2, "plan", messages("c"))
    states = [line.get("state") for line in lines(tmp_path)]
    assert states == [None, *["intended"] * (len(states) - 2), "sent"]
    assert (len(states) > 2) == (room > 500)
