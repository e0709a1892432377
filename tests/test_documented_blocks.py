"""Every command and snippet of every page is run or read by a test.

:mod:`tests.pages` runs all blocks of a page, in their order; other tests that run some are in
:data:`RUN` and :data:`tests.pages.declared.ELSEWHERE`. The others are read here by what reads them in
earnest: words by the command, images by what builds them. :data:`NOT_READ` has the rest, with the
reason. A block that is new, and none of these, fails; so does an entry of a block that is gone.

``python -m tests.test_documented_blocks`` prints how many blocks of each page are run, read and
neither.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import pytest

from certs import command as imqkeytool
from gateway import dbmgr
from gateway.admin.cli import imqbridgemgr, imqcmd
from gateway.broker.security import usermgr
from gateway.tap import Options
from pipeline import command as gateway_pipeline
from tests.documented_blocks import COMMANDS, PAGES, ROOT, Block, blocks
from tests.packaging import containerfile
from tests.pages import declared

pytestmark = pytest.mark.slow

#: Languages of which a test runs each block of a page.
RUN: Final = {
    ("pipeline_questions", "python"): "tests/pipeline/test_questions.py",
    ("pipeline_questions", "sql"): "tests/pipeline/test_questions.py",
    ("README", "python"): "tests/test_documentation.py",
}
#: Which test runs the files that pages include; a folder stands for all in it.
FILES: Final = {
    "cookbook": "tests/end_to_end/test_cookbook.py",
    "tutorial": "tests/end_to_end/test_tutorial.py",
    "first_session.py": "tests/test_documentation.py",
    "spelled_out.py": "tests/test_documentation.py",
    "moving_broker.py": "tests/test_documented_bridges.py",
    "written_down.py": "tests/test_documented_bridges.py",
    "by_country.py": "tests/test_documented_bridges.py",
}

#: Blocks that no test reads: the page, the first line, the reason.
NOT_READ: Final[dict[tuple[str, str], str]] = {
    each: why for each, why in declared.NOT_RUN.items() if why != declared.SYNTAX
}


def _accepted(group: click.Group, words: Sequence[str]) -> None:
    """Have a command parse its words, and do nothing."""
    if words == ["--help"]:
        return
    name, command, rest = group.resolve_command(
        click.Context(group),
        [word.replace("-varhome", "--varhome") if word == "-varhome" else word for word in words],
    )
    assert command is not None
    with suppress(click.exceptions.Exit):
        command.make_context(name, list(rest)).close()


def _asked(run: Callable[[list[str]], int], words: Sequence[str], passfile: Path) -> None:
    """Have a command parse its words, and find no broker."""
    kept = [
        word for at, word in enumerate(words) if not {"-passfile", "-b"} & {word, words[at - 1]}
    ]
    user = [] if "-u" in kept else ["-u", "admin"]
    run([*kept, *user, "-f", "-passfile", str(passfile), "-b", "127.0.0.1:1"])


GROUPS: Final[dict[str, click.Group]] = {
    "imqdbmgr": dbmgr.command,
    "imqkeytool": imqkeytool.command,
    "imqusermgr": usermgr.command,
    "gateway-pipeline": gateway_pipeline.group,
}
BROKERS: Final[dict[str, Callable[[list[str]], int]]] = {
    "imqcmd": imqcmd.run,
    "imqbridgemgr": imqbridgemgr.run,
}
#: What a command says that has understood its words: there is no broker, and no such file.
UNDERSTOOD: Final = "no broker answers at 127.0.0.1:1|expected a file that can be read|No such file"
#: Commands that pages name to say that they are not there.
NOT_THERE: Final = {"imqcmd compact dst", "imqcmd restart bkr", "imqusermgr encode"}
#: What a command says whose words are a part of one: what is there, or what else it needs.
IN_PART: Final = "expected {words} |is missing: |needs (the file|-bn or)|No context is used"
#: What else is read: targets of the Makefile, extras of the package, and files of the checkout.
READ: Final = (*COMMANDS, "make", "pip", ".venv/bin/python")
#: What a job is told where another program starts it.
JOB: Final = re.compile(r"(?:pipeline/__main__\.py|-m pipeline)\s(?:\\\n)?\s*(.*)")
SYNOPSIS: Final = re.compile(r"\[options\]|\.\.\.\]|\[--")


def program(line: str) -> str:
    """Return the program that a line starts."""
    return line.split()[0] if line.split() else ""


def kind(block: Block) -> str:
    """Return how a block is read; "" if it is not."""
    name = (block.page, block.first)
    if block.language != "file" and (
        name in declared.ELSEWHERE
        or (block.page in declared.PAGES and name not in declared.NOT_RUN)
    ):
        return "run"
    if name in NOT_READ:
        return ""
    if (block.page, block.language) in RUN or block.language == "file":
        return "run"
    if JOB.search(block.text):
        return "jobs"
    if block.text.startswith("FROM "):
        return "image"
    if any(program(line) in READ for line in block.typed):
        return "synopsis" if SYNOPSIS.search(block.text) else "commands"
    if block.language == "python" or block.page == "pipeline_tables":
        return "python"
    return ""


BLOCKS: Final = [block for page in PAGES for block in blocks(page)]


def of(wanted: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{block.page}: {block.first[:40]}")
        for block in BLOCKS
        if kind(block) == wanted
    ]


def test_each_block_is_run_or_read_or_declared() -> None:
    found = [(block.page, block.first) for block in BLOCKS if not kind(block)]
    new = [each for each in found if each not in NOT_READ]
    there = {(block.page, block.first) for block in BLOCKS}
    known = {*declared.ELSEWHERE, *declared.NOT_RUN}
    gone = [each for each in NOT_READ if each not in found] + sorted(known - there)
    assert (new, gone) == ([], []), "read it here, run it in a test, or say why not in NOT_READ"


@pytest.mark.parametrize("block", of("run"))
def test_the_tests_that_run_it_are_there(block: Block) -> None:
    path = block.text
    test = (
        declared.ELSEWHERE.get((block.page, block.first))
        or RUN.get((block.page, block.language))
        or ("tests/pages/test_pages.py" if block.language != "file" else "")
        or FILES[path if path in FILES else path.split("/")[0]]
    )
    file, _, name = test.partition("::")
    assert (ROOT / file).exists()
    assert not name or f"\ndef {name}(" in (ROOT / file).read_text("utf-8")
    assert block.language != "file" or (ROOT / "docs" / path).exists()


@pytest.mark.parametrize("block", of("commands"))
def test_commands_are_understood(
    block: Block,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Contexts are not to be this user's.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    passfile = tmp_path / "passfile"
    passfile.touch(0o600)
    passfile.write_text("imq.imqcmd.password=secret\nimq.imqbridgemgr.password=secret\n")
    for line in block.typed:
        if program(line) in READ:
            _understood(line, passfile)
            said = capsys.readouterr().err
            assert re.search(UNDERSTOOD, said) or not said, f"{line}: {said}"


INLINE: Final = sorted(
    {
        " ".join(text.split())
        for page in (*PAGES, ROOT / "CHANGES.rst")
        for text in re.findall(
            rf"``((?:{'|'.join(COMMANDS)})\s[^`]+)``", page.read_text(encoding="utf-8")
        )
    }
)


@pytest.mark.parametrize("line", INLINE)
def test_commands_within_a_sentence_or_a_table_are_there(
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may lack what they are about, but have only words that exist."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    passfile = tmp_path / "passfile"
    passfile.touch(0o600)
    passfile.write_text("imq.imqcmd.password=secret\nimq.imqbridgemgr.password=secret\n")
    said = ""
    try:
        _understood(line.replace("q|t", "q"), passfile)
    except (click.MissingParameter, SystemExit):
        pass
    except click.BadOptionUsage as error:
        # Its last word is an option without its value.
        said = "" if error.option_name == line.split()[-1] else str(error)
    except (click.NoSuchCommand, click.NoSuchOption) as error:
        said = str(error)
    said += capsys.readouterr().err
    words = re.escape(" ".join(line.split()[1:]))
    there = not said or re.search(f"{UNDERSTOOD}|{IN_PART.format(words=words)}", said)
    assert bool(there) == (line not in NOT_THERE), said


def _understood(line: str, passfile: Path) -> None:
    name, *words = shlex.split(re.split(r" [|>] ", line)[0].removesuffix("&"))
    if name in GROUPS:
        _accepted(GROUPS[name], words)
    elif name in BROKERS:
        _asked(BROKERS[name], words, passfile)
    elif name == "stomp-gateway":
        Options().parseOptions(words)
    elif name == "make":
        assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
    elif name == "pip":
        for extra in re.findall(r"[a-z]+", "".join(re.findall(r"\[([\w,]+)\]", line))):
            assert f"\n{extra} =\n" in (ROOT / "setup.cfg").read_text()
    else:
        assert (ROOT / words[0]).exists()


@pytest.mark.parametrize("block", of("synopsis"))
def test_a_synopsis_is_that_of_the_command(
    block: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in re.split(r"\n(?! )", block.text):
        name, word, *_ = text.split()
        if name in BROKERS:
            with suppress(SystemExit):
                BROKERS[name](["--help"])
            assert capsys.readouterr().out.startswith(f"usage: {text}\n")
            continue
        commands = _commands(GROUPS[name])
        chosen = commands.values() if word == "COMMAND" else [commands[word]]
        assert _dashed(text) <= set().union(*chosen), text
    if name == "gateway-pipeline":
        # Of these options all are there, here or among those of all jobs.
        page = (ROOT / "docs" / f"{block.page}.rst").read_text("utf-8")
        of_all = _dashed("\n".join(re.findall(r"(?m)^``--.*", page)))
        assert commands[word] - {"--help"} <= _dashed(block.text) | of_all


@pytest.mark.parametrize("block", of("jobs"))
def test_jobs_of_other_programs_are_understood(block: Block) -> None:
    """What Spark's own programs are told besides is theirs."""
    for words in JOB.findall(block.text.replace("\\\n", " ")):
        _accepted(gateway_pipeline.group, shlex.split(words))


@pytest.mark.parametrize("block", of("image"))
def test_an_image_has_what_it_copies(block: Block) -> None:
    stages = containerfile.parsed(block.text)
    names = {stage.name for stage in stages}
    copied = [rest for stage in stages for word, rest, _ in stage.steps if word == "COPY"]
    assert set(re.findall("--from=([a-z]+)", " ".join(copied))) <= names
    extras = re.findall(r"whl\)\[(\w+)\]", block.text)
    assert all(f"\n{extra} =\n" in (ROOT / "setup.cfg").read_text() for extra in extras)


def _commands(group: click.Group) -> dict[str, set[str]]:
    """Return the options of each command that its help shows."""
    context = click.Context(group)
    found: dict[str, set[str]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        shown = [
            each for each in command.params if isinstance(each, click.Option) and not each.hidden
        ]
        found[name] = {option for each in shown for option in each.opts}
    return found


def _dashed(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


@pytest.mark.parametrize("block", of("python"))
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)


def table() -> str:
    """Return how many blocks of each page are run, read and neither."""
    counts = {block.page: Counter[str]() for block in BLOCKS}
    for block in BLOCKS:
        read = kind(block)
        counts[block.page][read if read == "run" else "read" if read else "neither"] += 1
    columns = ("run", "read", "neither")
    rows = [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]
    return "\n".join(
        f"{page:24}" + "".join(f"{count[column]:4} {column}" for column in columns)
        for page, count in rows
    )


if __name__ == "__main__":
    print(table())
