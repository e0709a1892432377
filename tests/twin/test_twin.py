"""The twin run finds that each mutant of this checkout differs from it.

A mutant is a text to find in the sources and what to put in its place. When a text is gone, give
the mutant another one that breaks the same promise.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.twin.pair import ALLOWANCES, Different, Pair, compare

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[2]
#: What a gateway needs.
_PACKAGES: Final = ("gateway", "bridge", "certs")
#: By what is wrong with it: the folder, the text, what becomes of it, and where it must show.
MUTANTS: Final = {
    "delivers in the wrong order": (
        "gateway/stomp",
        r"( +)(parts = self\._output\.parts\n +tail = )",
        r"\1messages = messages[::-1]\n\1\2",
        "out",
    ),
    "does not delete from the store": (
        "gateway/broker",
        r"gathering\.batch\.deletes\[seq\] = None",
        "pass",
        "store",
    ),
    "does not store attempts": (
        "gateway/broker",
        r"\.redeliveries\[owner, seq\] = ",
        ".redeliveries.get((owner, seq)); _ = ",
        "store",
    ),
    "gives the store more batches": (
        "gateway/broker",
        r"MOST_OPERATIONS: Final = 2_000",
        "MOST_OPERATIONS: Final = 2",
        "store",
    ),
    "forgets the redelivered flag": (
        "gateway/stomp",
        r'b"redelivered:true\\n"',
        r'b"redelivered:false\\n"',
        "out",
    ),
    "does not tell the journal what is stored": (
        "gateway",
        r"on_stored = None if .*",
        "on_stored = None",
        "journal",
    ),
    "forgets some receipts": (
        "gateway/stomp",
        r"self\._output\.add\(ticket\.octets\)",
        '_ = b":r3" in ticket.octets or self._output.add(ticket.octets)',
        "out",
    ),
    "sends receipts before the commit": (
        "gateway/broker",
        r"self\._gathering\.waiters\.append\(\(waiter, inserts\)\)",
        "self._turn.deliver(lambda: waiter(None))",
        "out",
    ),
    "takes a block for the one before it of the same shape": (
        "gateway/stomp",
        r" and lines == last\.lines",
        "",
        "store",
    ),
    "gives up the wrong message at a limit": (
        "gateway/broker",
        r"else self\.dispatch\.backlog\.oldest\(\)",
        "else self.dispatch.backlog.least()",
        "journal",
    ),
}


def copied(folder: Path) -> Path:
    """Copy what a gateway needs."""
    for package in _PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def mutate(tree: Path, below: str, pattern: str, replacement: str) -> None:
    """Change the sources below a folder."""
    found = 0
    for file in sorted((tree / below).rglob("*.py")):
        text, count = re.subn(pattern, replacement, file.read_text())
        if count:
            found += count
            file.write_text(text)
    assert found, f"no source below {below} has {pattern}: give the mutant another text"


def test_every_mutant_has_a_text_of_the_sources(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    for below, pattern, replacement, _ in MUTANTS.values():
        mutate(tree, below, pattern, replacement)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_differs(name: str, tmp_path: Path) -> None:
    below, pattern, replacement, stream = MUTANTS[name]
    mutate(copied(tmp_path), below, pattern, replacement)
    with Pair(ROOT, tmp_path) as pair, pytest.raises(Different) as different:
        compare(pair, examples=600, number=1, operations=40)
    assert f"\n  {stream}:" in str(different.value)


def test_the_same_tree_does_the_same(tmp_path: Path) -> None:
    with Pair(ROOT, copied(tmp_path)) as pair:
        compare(pair, examples=30, number=2, operations=40)
    assert pair.tally.counts["MESSAGE"]
    assert pair.tally.counts["MESSAGE again"]


def test_without_shapes_of_header_blocks_the_same_tree_does_the_same(tmp_path: Path) -> None:
    mutate(copied(tmp_path), "gateway/stomp", ", rule=profile.varying", "")
    with Pair(tmp_path, ROOT, ("header-order", "order", "store")) as pair:
        compare(pair, examples=60, number=3, operations=40, without=frozenset(("envelopes",)))
    assert pair.tally.counts["MESSAGE"]


def test_a_difference_has_the_shortest_script(tmp_path: Path) -> None:
    below, pattern, replacement, _ = MUTANTS["forgets some receipts"]
    mutate(copied(tmp_path), below, pattern, replacement)
    command = [sys.executable, "-m", "tests.twin", str(ROOT), str(tmp_path), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    operations = [line for line in lines if line.startswith("    [")]
    assert len(operations) == 1, done.stdout
    assert "r3" in operations[0]


def test_what_is_allowed_is_no_difference() -> None:
    error = {"out": {"0": "ERROR\nmessage:a\ncontent-length:1\nx:1\n\na\0\n"}}
    plainer = {"out": {"0": "ERROR\nmessage:bc\ncontent-length:2\nx:1\n\nbc\0\n"}}
    texts = ALLOWANCES["error-texts"].change
    assert texts(error) == texts(plainer)
    assert texts(error)["out"]["0"].startswith("ERROR\nx:1\n")
    message = {"out": {"0": "MESSAGE\na:1\nb:2\n\nbody\0\nMESSAGE\nb:2\na:1\n\nbody\0\n"}}
    one, two = ALLOWANCES["header-order"].change(message)["out"]["0"].split("\0\n")[:2]
    assert one == two
    added = ALLOWANCES["added-steps"].change
    newer = ['{"steps": ["routed", "delivered"], "selector": "a = 1"}', '{"steps": ["routed"]}']
    assert added({"journal": newer}) == added({"journal": ['{"steps": ["delivered"]}']})
    assert added({"journal": newer[1:]}) == added({})
