"""The terminal of a reader, who types commands and what they ask for."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZipFile

import click.termui
import pytest

import gateway
from certs import command as imqkeytool
from gateway import dbmgr
from gateway.admin.cli import imqbridgemgr, imqcmd
from gateway.broker.security import usermgr
from tests.gateway_process import ROOT, heed_interrupts
from tests.pages.machine import PATIENCE, Machine

if TYPE_CHECKING:
    from tests.postgresql import Cluster

#: What runs within this process.
_PROGRAMS: Final[dict[str, Callable[[list[str]], int]]] = {
    "imqbridgemgr": imqbridgemgr.run,
    "imqcmd": imqcmd.run,
    "imqdbmgr": dbmgr.run,
    "imqkeytool": imqkeytool.run,
    "imqusermgr": usermgr.run,
}
_MODULES: Final = {
    "gateway-pipeline": "pipeline.command",
    "imqbridgemgr": "gateway.admin.cli.imqbridgemgr",
    "imqcmd": "gateway.admin.cli.imqcmd",
    "imqdbmgr": "gateway.dbmgr",
    "imqkeytool": "certs.command",
    "imqusermgr": "gateway.broker.security.usermgr",
    "stomp-gateway": "gateway.command",
}
#: What concerns the lines below it.
_OF_A_SHELL: Final = ("cd", "export", "source", ".")
#: What a shell is needed for, where it is not in quotes.
_SHELL: Final = re.compile(r"[|<>;&$*~`()]")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Typed(_Terminal):
    """What is typed; a terminal shows it."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        line = super().readline(size)
        sys.stdout.write(line)
        return line


class Terminal(Machine):
    """Runs commands.

    Those of this project are called within this process; lines that need a shell get one.
    """

    #: Typed where the passcode of a new user is asked for.
    PASSCODE: Final = "correct horse battery"

    def __init__(
        self,
        folder: Path,
        ending: ExitStack,
        server: Callable[[], Cluster],
        patch: pytest.MonkeyPatch,
    ) -> None:
        super().__init__(folder, ending, server)
        self._patch = patch
        #: What is typed where a question is asked.
        self.answers = "y\n" * 9
        #: What was printed last.
        self.said = ""
        self._ends: tuple[str, int] | None = None
        self._follows: str | None = None
        self._meanwhile: Callable[[], object] = bool
        self._following: subprocess.Popen[bytes] | None = None
        self._configure()

    def _configure(self) -> None:
        set_variable = self._patch.setenv
        set_variable("HOME", str(self.folder))
        set_variable("XDG_CONFIG_HOME", str(self.folder / "config"))
        set_variable("IMQ_VARHOME", str(self.folder / "var"))
        set_variable("PYTHONPATH", str(ROOT))
        # What is installed is there, and nothing is fetched or changed.
        set_variable("PIP_NO_INDEX", "1")
        set_variable("PIP_DRY_RUN", "1")
        set_variable("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        set_variable("PATH", f"{self._commands()}:{os.environ['PATH']}")
        self._patch.chdir(self.folder)
        self._patch.setattr(click.termui, "hidden_prompt_func", lambda prompt: self.PASSCODE)
        self._patch.setattr("getpass.getpass", lambda prompt: self.password)

    def _commands(self) -> Path:
        made = self.folder / "bin"
        made.mkdir()
        # The ports are those of this machine, not of others that use it.
        ports = " ".join(f"-D{name}={value}" for name, value in self._gateway.settings.items())
        commands = {
            "python": ("", ""),
            "python3": ("", ""),
            "pip": ("-m pip", ""),
            "nc": (f"{ROOT}/tests/pages/nc.py", ""),
            "twistd": ("-c 'from twisted.scripts.twistd import run; run()'", ports),
        }
        for name, module in _MODULES.items():
            main = f"-c 'from {module} import main; main()'"
            commands[name] = (main, ports if name == "stomp-gateway" else "")
        for name, (before, after) in commands.items():
            file = made / name
            file.write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {before} "$@" {after}\n'
            )
            file.chmod(0o755)
        self._make(made / "make", ports)
        return made

    def _make(self, file: Path, ports: str) -> None:
        """Have ``make`` as in a checkout whose environment is there."""
        made = self.folder / "made"
        made.mkdir()
        for name in ("python", "imqkeytool"):
            (made / name).symlink_to(file.parent / name)
        gateway = made / "stomp-gateway"
        # Given last, these count.
        web = f"-Dimq.bridge.stomp.listener.web.port={self.port(7674)}"
        gateway.write_text(
            f'#!/bin/sh\nexec {file.parent}/stomp-gateway "$@" {ports} '
            f"-Dimq.bridge.stomp.tls.enabled=true {web}\n"
        )
        variables = f"STOMP_GATEWAY_PURE=1 VAR={self.folder}/made/var BIN={made}"
        file.write_text(
            "#!/bin/sh\nexec /usr/bin/make --no-print-directory "
            f'-C {ROOT} -o .venv/.installed {variables} "$@"\n'
        )
        for each in (gateway, file):
            each.chmod(0o755)

    def ends(self, code: int, line: str = "") -> None:
        """The commands of the next block that begin so end with this exit code."""
        self._ends = (line, code)

    def follows(self, what: str = "", meanwhile: Callable[[], object] = bool) -> None:
        """The next block is one command that prints what happens, until Ctrl-C.

        :param what: is waited for; "" where the page shows what comes.
        :param meanwhile: makes it happen; is called again and again.
        """
        self._follows = what
        self._meanwhile = meanwhile

    def wheel(self) -> None:
        """Have a wheel in the folder that has metadata only."""
        name = f"stomp_gateway-{gateway.__version__}"
        # Of an installation or of a checkout: its file is called METADATA or PKG-INFO.
        text = str(distribution("stomp-gateway").metadata)
        with ZipFile(self.folder / f"{name}-py3-none-any.whl", "w") as made:
            made.writestr(f"{name}.dist-info/METADATA", text)
            made.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            made.writestr(f"{name}.dist-info/RECORD", "")

    def cd(self, folder: str) -> None:
        """Go into a folder."""
        self._patch.chdir(self.folder / folder)

    def environment(self, name: str, value: str) -> None:
        """Set a variable for what runs from now on, but the gateway."""
        self._patch.setenv(name, value)

    def runs(self, line: str) -> None:
        """Run a command that the page does not show."""
        before, self.said = self.said, ""
        self._run([line])
        self.said = before

    def asks(self, line: str) -> Any:
        """Return what a command prints as JSON."""
        before, self.said = self.said, ""
        self._run([f"{line} --json"])
        answer, self.said = json.loads(self.said), before
        return answer

    def _run(self, lines: Sequence[str]) -> None:
        if self._follows is not None:
            self._follow("\n".join(lines))
            return
        if any(line.split()[0] in _OF_A_SHELL or re.match(r"\w+=", line) for line in lines):
            lines = ["\n".join(lines)]
        ends, self._ends = self._ends, None
        for line in lines:
            wanted = ends[1] if ends and line.startswith(ends[0]) else 0
            code = (
                self._program(shlex.split(self.here(line))) if _plain(line) else self._shell(line)
            )
            assert (code or 0) == wanted, (
                f"$ {line}\n{self.said}\nended with {code}\n{self._gateway.log[-3000:]}"
            )

    def _program(self, words: list[str]) -> int:
        name, *arguments = words
        if name in ("imqcmd", "imqbridgemgr"):
            assert self.gateway
        out = _Terminal()
        with redirect_stdout(out), redirect_stderr(out), self._typing():
            code = _PROGRAMS[name](arguments)
        self.said += out.getvalue()
        return code

    @contextmanager
    def _typing(self) -> Iterator[None]:
        before, sys.stdin = sys.stdin, _Typed(self.answers)
        try:
            yield
        finally:
            sys.stdin = before

    def _shell(self, script: str) -> int:
        script = self._with_password(self.here(script))
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            input=self.answers,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
            # Without a terminal of its own what asks for a password reads what is typed.
            start_new_session=True,
        )
        self.said += done.stdout
        return done.returncode

    def _with_password(self, script: str) -> str:
        if re.search("imqcmd|imqbridgemgr|curl", script):
            # What curl would ask for.
            script = re.sub(r"(curl\b.* -u admin)\b(?!:)", rf"\1:{self.password}", script)
        return script

    def _follow(self, script: str) -> None:
        file = self.folder / "followed"
        with file.open("wb") as out:
            self._following = subprocess.Popen(
                ["bash", "-c", self._with_password(self.here(script))],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=heed_interrupts,
            )
        self.ending.callback(_end, self._following)
        wanted, self._follows = self._follows, None
        if wanted:
            self._heard(lambda said: wanted in said or self._meanwhile(), wanted)

    def _heard(self, enough: Callable[[str], object], what: str) -> None:
        """Wait until a command that goes on has printed enough, and interrupt it."""
        following, self._following = self._following, None
        assert following is not None
        file = self.folder / "followed"
        self.until(
            lambda: enough(file.read_text()), lambda: f"\n{what}\nis not in\n{file.read_text()}"
        )
        self.said = file.read_text()
        os.killpg(following.pid, signal.SIGINT)
        following.wait(PATIENCE)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def typed(text: str) -> Iterator[str]:
    """The commands of a text; one goes on where a quotation is not closed."""
    begun = ""
    for line in text.replace("\\\n", " ").splitlines():
        if not begun and (not line.strip() or line[0] == "#"):
            continue
        begun += line.partition(" #")[0].rstrip() if not begun else line
        try:
            shlex.split(begun)
        except ValueError:
            begun += "\n"
        else:
            yield begun
            begun = ""
    assert not begun, begun


def _plain(line: str) -> bool:
    """Whether a line needs no shell."""
    bare = re.sub(r"'[^']*'|\"[^\"$]*\"", "", line)
    return line.split()[0] in _PROGRAMS and not _SHELL.search(bare)
