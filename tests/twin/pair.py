"""Two trees side by side: asked the same, compared turn by turn."""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.twin.scripts import scripts

ROOT: Final = Path(__file__).parents[2]
#: Seconds that one script may take.
_PATIENCE: Final = 120
Turn = Mapping[str, Any]


class Different(AssertionError):
    """The trees differ.

    The text has the script, and the first turn that differs.
    """


class ChildFailed(Exception):
    """A tree cannot play a script.

    The adapter does not know this tree, or the process has ended.
    """


# --- what may differ


@dataclass(frozen=True)
class Allowance:
    """A difference that is meant. :param change: takes it out of a turn."""

    reason: str
    change: Callable[[Turn], Turn]


_FRAME: Final = re.compile(r"([A-Z]+)\n(.*?)\n\n(.*?)\0\n?", re.DOTALL)
#: What was asked, or what came to the coordinator.
_CALL: Final = re.compile(r"^[a-z]+(?: [a-z_]+)?", re.MULTILINE)
#: What was asked, and the name of the error that it failed with.
_ANSWER: Final = re.compile(r"^([^:]*: \w+): .*", re.DOTALL)
#: Steps that the journal has not always had.
_ADDED_STEPS: Final = ("routed", "acknowledgement confirmed")
_TEXTS: Final = re.compile(r"^(?:message|content-length):.*\n?", re.MULTILINE)


def _frames_changed(turn: Turn, change: Callable[[re.Match[str]], str]) -> Turn:
    out = {name: _FRAME.sub(change, text) for name, text in turn.get("out", {}).items()}
    return {**turn, "out": out} if out else turn


def _answers_changed(turn: Turn) -> Turn:
    answers = [_ANSWER.sub(r"\1", answer) for answer in turn.get("answers", ())]
    return {**turn, "answers": answers} if answers else turn


def _without_error_text(frame: re.Match[str]) -> str:
    command, headers, _ = frame.groups()
    if command != "ERROR":
        return frame[0]
    return f"{command}\n{_TEXTS.sub('', headers)}\n\n(text)\0\n"


def _with_sorted_headers(frame: re.Match[str]) -> str:
    command, headers, body = frame.groups()
    lines = "\n".join(sorted(headers.split("\n")))
    return f"{command}\n{lines}\n\n{body}\0\n"


def _without(stream: str) -> Callable[[Turn], Turn]:
    return lambda turn: {name: value for name, value in turn.items() if name != stream}


def _without_added_steps(turn: Turn) -> Turn:
    lines = []
    for text in turn.get("journal", ()):
        line = json.loads(text)
        line["steps"] = [step for step in line["steps"] if step not in _ADDED_STEPS]
        line.pop("selector", None)
        if line["steps"]:
            lines.append(json.dumps(line))
    return {**turn, "journal": lines} if lines else _without("journal")(turn)


ALLOWANCES: Final[dict[str, Allowance]] = {
    "error-texts": Allowance(
        "texts of ERROR frames, and of what an operator is answered, may become plainer",
        lambda turn: _answers_changed(_frames_changed(turn, _without_error_text)),
    ),
    "header-order": Allowance(
        "headers of one frame come in any order; since 6d4a2d8 those of the message come last",
        lambda turn: _frames_changed(turn, _with_sorted_headers),
    ),
    "order": Allowance(
        "writes of one turn and requests to the store may change places with those of others",
        _without("order"),
    ),
    "added-steps": Allowance(
        "the journal has the steps of routing and of confirmed acknowledgements",
        _without_added_steps,
    ),
    "journal": Allowance("the journal may tell other steps", _without("journal")),
    "store": Allowance(
        "batches may be cut differently; nothing of the store is compared, only what clients see",
        lambda turn: _without("store")(_without("order")(turn)),
    ),
}


# --- the children


class Child:
    """The process that runs the gateway of one tree."""

    def __init__(self, tree: Path, folder: str) -> None:
        self.tree = tree
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.twin.child", str(tree), folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": "", "PYTHONHASHSEED": "0", "HOME": folder},
        )

    def ask(self, script: object) -> None:
        """Have a script played. :raises ChildFailed: the process has ended."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(script), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise ChildFailed(f"{self.tree}: the child process has ended") from None

    def answer(self) -> list[Turn]:
        """Return the trace of the script asked last."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            raise ChildFailed(f"{self.tree}: no answer within {_PATIENCE} seconds")
        line = self._process.stdout.readline()
        if not line:
            raise ChildFailed(f"{self.tree}: the child process has ended")
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise ChildFailed(f"{self.tree}: {answer['error']}")
        return list(answer)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@dataclass
class Tally:
    """What the scripts made the gateway do, to judge whether it was enough."""

    scripts: int = 0
    turns: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, trace: Sequence[Turn]) -> None:
        self.scripts += 1
        self.turns += len(trace)
        for turn in trace:
            for text in turn.get("out", {}).values():
                for frame in _FRAME.finditer(text):
                    again = "\nredelivered:true" in f"\n{frame[2]}"
                    self.counts[f"{frame[1]} again" if again else frame[1]] += 1
            self.counts.update(kind for kind, _ in turn.get("store", ()))
            self.counts.update(_CALL.findall("\n".join(turn.get("answers", ()))))
            for line in turn.get("journal", ()):
                self.counts.update(json.loads(line)["steps"])

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"{self.scripts} scripts, {self.turns} turns: {counts}"


class Pair:
    """Two trees that play the same scripts. A context manager.

    :param allowed: names in :data:`ALLOWANCES`.
    """

    def __init__(self, old: Path, new: Path, allowed: Sequence[str] = ()) -> None:
        self._trees = (old.resolve(), new.resolve())
        self._allowed = [ALLOWANCES[name] for name in allowed]
        self._open = ExitStack()
        self._children: list[Child] = []
        self.tally = Tally()

    def __enter__(self) -> Pair:
        for tree in self._trees:
            folder = self._open.enter_context(tempfile.TemporaryDirectory())
            child = Child(tree, folder)
            self._open.callback(child.close)
            self._children.append(child)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def play(self, script: Mapping[str, Any]) -> None:
        """Play one script.

        :raises Different: the trees differ, or one has a defect.
        """
        for child in self._children:
            child.ask(script)
        old, new = [child.answer() for child in self._children]
        self.tally.add(new)
        nothing: Turn = {}
        for number, (was, now) in enumerate(zip_longest(old, new, fillvalue=nothing)):
            for allowance in self._allowed:
                was, now = allowance.change(was), allowance.change(now)
            if was != now or "defects" in was:
                raise Different("\n".join(_report(script, number, was, now)))


def _report(script: Mapping[str, Any], number: int, was: Turn, now: Turn) -> Iterator[str]:
    options = {name: value for name, value in script["options"].items() if value}
    yield f"options: {json.dumps(options)}"
    for operation in script["operations"][: number + 1]:
        yield f"    {json.dumps(operation)}"
    yield f"turn {number} differs"
    for stream in sorted({*was, *now}):
        if was.get(stream) != now.get(stream):
            yield f"  {stream}:"
            yield from _lines("    old ", was.get(stream))
            yield from _lines("    new ", now.get(stream))
        elif stream == "defects":
            yield from _lines("    both ", was[stream])


def _lines(label: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _lines(f"{label}{name} ", each)
    elif isinstance(value, list):
        for each in value:
            yield f"{label}{each if isinstance(each, str) else json.dumps(each)}".rstrip()
    elif isinstance(value, str):
        for frame in value.split("\0\n"):
            if frame:
                yield f"{label}{frame!r}"
    else:
        yield f"{label}nothing"


def compare(
    pair: Pair, examples: int, number: int, operations: int, without: frozenset[str] = frozenset()
) -> None:
    """Play generated scripts.

    :raises Different: with the shortest script that shows it.
    :param number: the seed of what is generated.
    :param operations: at most in one script.
    """
    found: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        # Hypothesis would look for a shorter script for minutes, and for one at least half as long.
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(scripts(operations, without))
    def check(script: dict[str, Any]) -> None:
        try:
            pair.play(script)
        except Different:
            found.append(script)
            raise

    try:
        check()
    except Different:
        pair.play(shortest(pair, found[0]))
        raise


def shortest(pair: Pair, script: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a script what its difference does not need."""
    shorter = True
    while shorter:
        shorter = False
        for candidate in _shorter(script):
            try:
                pair.play(candidate)
            except Different:
                script, shorter = candidate, True
                break
    return script


def _shorter(script: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Scripts with a part less, the largest parts first."""
    operations = script["operations"]
    for size in (8, 3, 1):
        for end in range(len(operations), size - 1, -size):
            yield {**script, "operations": operations[: end - size] + operations[end:]}
    options = script["options"]
    for name in options:
        yield {**script, "options": {key: options[key] for key in options if key != name}}
    for setting in options.get("settings", ()):
        left = [each for each in options["settings"] if each is not setting]
        yield {**script, "options": {**options, "settings": left}}
    for place, operation in enumerate(operations):
        for simpler in _simpler(operation):
            yield {**script, "operations": [*operations[:place], simpler, *operations[place + 1 :]]}


def _simpler(operation: Sequence[Any]) -> Iterator[list[Any]]:
    """The operation with a frame less, or a header."""
    if operation[0] != "say":
        return
    verb, name, frames = operation
    for place, (command, headers, body) in enumerate(frames):
        before, after = frames[:place], frames[place + 1 :]
        if before or after:
            yield [verb, name, [*before, *after]]
        for header in headers:
            left = {key: headers[key] for key in headers if key != header}
            yield [verb, name, [*before, [command, left, body], *after]]
