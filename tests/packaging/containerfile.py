"""Reads a Containerfile and runs its steps as a builder does.

As much of the language as the project's own file has; anything else is refused. A RUN step is run
in a machine whose network is this one's, because it installs packages.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

WORDS: Final = {
    *("FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE"),
    *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
}
PATIENCE: Final = 900.0


@dataclass
class Stage:
    """One image: its steps, and what it says of the processes in it."""

    base: str
    name: str
    #: Each with the variables that were set before it.
    steps: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    workdir: str = "/"
    volumes: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    stop_signal: str = ""
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def lines(text: str) -> list[tuple[str, str]]:
    """The instructions of a file: a word, and the rest."""
    joined = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = []
    for line in joined.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            assert word in WORDS, f"{word} is not known here"
            found.append((word, rest.strip()))
    return found


def parsed(text: str) -> list[Stage]:
    """The stages of a file."""
    stages: list[Stage] = []
    for word, rest in lines(text):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
            continue
        stage = stages[-1]
        if word in ("RUN", "COPY"):
            stage.steps.append((word, rest, dict(stage.environment)))
        elif word == "ENV":
            name, _, value = rest.partition("=")
            stage.environment[name] = value
        elif word == "USER":
            stage.user = rest
        elif word == "WORKDIR":
            stage.workdir = rest
        elif word == "VOLUME":
            stage.volumes.append(rest)
        elif word == "EXPOSE":
            stage.ports += map(int, rest.split())
        elif word == "STOPSIGNAL":
            stage.stop_signal = rest
        elif word == "HEALTHCHECK":
            stage.health = json.loads(rest.partition("CMD ")[2])
        elif word == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        else:
            stage.command = json.loads(rest)
    return stages


def build(
    stages: list[Stage],
    context: Path,
    folder: Path,
    base: Callable[[Path], None],
    variables: Mapping[str, str],
) -> Path:
    """Run the steps. :returns: the root of the last image.

    :param context: what COPY copies from.
    :param base: makes the files of the base image in a folder.
    :param variables: more of them in the environment of RUN, as a builder can give.
    """
    roots: dict[str, Path] = {}
    root = folder
    for number, stage in enumerate(stages):
        root = folder / f"stage{number}"
        base(root)
        roots[stage.name] = root
        for word, rest, environment in stage.steps:
            if word == "RUN":
                _run(root, rest, {**environment, **variables})
            else:
                _copy(rest, context, root, roots)
    return root


def _run(root: Path, command: str, environment: dict[str, str]) -> None:
    mounts = "mount -t proc proc proc; mount --rbind /dev dev"
    script = f'mount --make-rprivate /; cd "$1"; {mounts}; exec chroot . /bin/sh -c "$2"'
    done = subprocess.run(
        [
            *["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"],
            script,
            "sh",
            root,
            command,
        ],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def _copy(rest: str, context: Path, root: Path, roots: dict[str, Path]) -> None:
    words = shlex.split(rest)
    if words[0].startswith("--from="):
        context = roots[words.pop(0).removeprefix("--from=")]
    source, target = words
    there = root / target.lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    if (here := context / source.lstrip("/")).is_dir():
        ignored = shutil.ignore_patterns(".*", "__pycache__", "var", "build", "dist", "_build")
        shutil.copytree(here, there, symlinks=True, ignore=None if source != "." else ignored)
    else:
        shutil.copy2(here, there)
