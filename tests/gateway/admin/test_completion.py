"""A real bash completes command lines with what the programs print."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.cli import imqbridgemgr, imqcmd
from tests.gateway_process import ROOT

pytestmark = pytest.mark.process

#: Completes each line of its input, split as bash splits it.
_ASK = """\
source /dev/fd/3
compopt() { :; }
while IFS= read -r line; do
  COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMP_KEY=9
  eval "COMP_WORDS=($line)"
  if [[ $line == *' ' ]]; then COMP_WORDS+=(''); fi
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  FUNCTION "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
  echo "${COMPREPLY[*]}"
done
"""


def offered(
    script: str, function: str, lines: Sequence[str], path: str = "/usr/bin:/bin"
) -> list[list[str]]:
    """What bash offers at the end of each line."""
    done = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f"exec 3<<'SCRIPT'\n{script}\nSCRIPT\n" + _ASK.replace("FUNCTION", function),
        ],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PATH": path, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def printed(program: Any, shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert program.run(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("program", [imqcmd, imqbridgemgr])
def test_every_command_of_the_table_is_offered(
    program: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name: str = program.PROGRAM
    table: Mapping[tuple[str, str], Any] = program._COMMANDS
    subcommands = list(dict.fromkeys(subcommand for subcommand, _ in table))
    named = {
        which: command
        for which, command in table.items()
        if which[1] not in ("", "FILE", "contexts")
    }
    lines = [f"{name} "]
    lines += [f"{name} {subcommand} " for subcommand, _ in named]
    lines += [f"{name} {subcommand} {argument} -" for subcommand, argument in named]
    script = printed(program, "bash", capsys)
    first, *answers = offered(script, f"_{name}", lines)
    assert first == subcommands
    for (_, argument), answer in zip(named, answers[: len(named)], strict=True):
        assert argument in answer
    for command, answer in zip(named.values(), answers[len(named) :], strict=True):
        assert {*command.needs, *command.may, "-b", "-passfile", "-h"} <= {*answer}


def test_options_and_their_values_are_in_the_way_of_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "orders.toml").touch()
    (tmp_path / "other dir").mkdir()
    lines = {
        "imqcmd lis": ["list"],
        "imqcmd -b host : 7676 list ds": ["dst"],
        "imqcmd list -u admin dst -t": ["-t", "-tmp"],
        "imqcmd list dst -t ": ["q", "t"],
        "imqcmd list dst -u ": [],
        "imqcmd list dst -D a = b -t ": ["q", "t"],
        f"imqcmd plan {tmp_path}/or": [f"{tmp_path}/orders.toml"],
        f"imqcmd list dst -passfile {tmp_path}/or": [f"{tmp_path}/orders.toml"],
        f"imqcmd plan {tmp_path}/orders.toml -pr": ["-prune"],
        "imqcmd plan x -tm": [],
        "imqcmd nothing ": [],
        "imqcmd completion ": ["bash", "zsh", "fish"],
    }
    script = printed(imqcmd, "bash", capsys)
    assert dict(zip(lines, offered(script, "_imqcmd", list(lines)), strict=True)) == lines


@pytest.mark.parametrize(
    ("program", "module", "line", "expected"),
    [
        ("imqusermgr", "gateway.broker.security.usermgr", "imqusermgr ad", "add"),
        ("imqdbmgr", "gateway.dbmgr", "imqdbmgr bac", "backup"),
        ("imqkeytool", "certs.command", "imqkeytool client --na", "--name"),
    ],
)
def test_programs_of_click_answer_for_themselves(
    tmp_path: Path, program: str, module: str, line: str, expected: str
) -> None:
    run = tmp_path / program
    run.write_text(
        f'#!/bin/bash\nexec {sys.executable} -c "from {module} import main; main()" "$@"\n'
    )
    run.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        [str(run), "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
        env={"PATH": path, "PYTHONPATH": str(ROOT)},
    )
    assert offered(done.stdout, f"_{program}_completion", [line], path) == [[expected]]


def test_contexts_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    for name in ("staging", "production"):
        assert imqcmd.run(["context", "add", name, "-b", "127.0.0.1:7676"]) == 0
    run = tmp_path / "imqcmd"
    run.write_text(
        "#!/bin/bash\n"
        f"XDG_CONFIG_HOME={home} exec {sys.executable} -c 'from gateway.admin.cli import imqcmd; imqcmd.main()' \"$@\"\n"
    )
    run.chmod(0o755)
    capsys.readouterr()
    script = printed(imqcmd, "bash", capsys)
    lines = {
        "imqcmd list dst -context ": ["production", "staging"],
        "imqcmd context use st": ["staging"],
        "imqcmd context remove p": ["production"],
    }
    path = f"{tmp_path}:/usr/bin:/bin"
    assert dict(zip(lines, offered(script, "_imqcmd", list(lines), path), strict=True)) == lines
    for shell in ("zsh", "fish"):
        assert "imqcmd completion contexts" in printed(imqcmd, shell, capsys)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = printed(imqcmd, shell, capsys)
    for (subcommand, argument), command in imqcmd._COMMANDS.items():
        words = f"{subcommand} *" if argument == "FILE" else f"{subcommand} {argument}".strip()
        quoted = f"'{subcommand} '*)" if argument == "FILE" and shell == "zsh" else f"'{words}'"
        assert quoted in script
        assert {*command.needs, *command.may} <= {*script.split()}
