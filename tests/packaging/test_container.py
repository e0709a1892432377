"""The Containerfile: what it says, and its own steps, run in a folder.

Where there is no builder of images the steps are run as a builder runs them, on the files that
Debian's own tool makes of the release which the file names.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.packaging import containerfile
from tests.packaging.machine import PATIENCE, needs_root
from tests.packaging.test_debian import CLIENT

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "packaging" / "container" / "Containerfile"
MIRROR: Final = "bookworm"


def test_what_the_file_says_of_the_processes() -> None:
    stages = containerfile.parsed(FILE.read_text())
    image = stages[-1]
    assert [stage.name for stage in stages] == ["build", ""]
    assert {stage.base for stage in stages} == {f"docker.io/library/debian:{MIRROR}-slim"}
    assert (image.user, image.stop_signal) == ("stomp-gateway", "SIGTERM")
    assert image.volumes == [image.environment["IMQ_VARHOME"]] == [image.workdir]
    assert image.entrypoint == ["stomp-gateway"]
    assert "-Dimq.health.port=7680" in image.command
    assert {7672, 7680} <= set(image.ports)
    # What it copies is there, and the health check is one of its files.
    copied = [rest.split() for word, rest, _ in image.steps if word == "COPY"]
    for *options, source, target in copied:
        assert options or (ROOT / source).exists()
        assert target.startswith("/")
    assert f"/usr/local/bin/{image.health[0]}" in {words[-1] for words in copied}


def test_a_file_with_another_word_is_refused() -> None:
    with pytest.raises(AssertionError, match="ONBUILD is not known here"):
        containerfile.parsed("FROM a\nONBUILD RUN b\n")


@pytest.mark.long
def test_its_steps_make_a_container_that_works(tmp_path: Path) -> None:
    needs_root()
    base = tmp_path / "base.tar"
    made: list[str | Path] = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=ca-certificates",
        MIRROR,
        base,
    ]
    subprocess.run(made, check=True, timeout=900)

    def unpack(root: Path) -> None:
        root.mkdir()
        subprocess.run(["tar", "-xpf", base, "-C", root, "--exclude=./dev/*"], check=True)
        # How names are found and whom to trust is this machine's, as a builder has it.
        for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            shutil.copy(f"/{name}", root / name)

    stages = containerfile.parsed(FILE.read_text())
    root = containerfile.build(
        # To compile it takes minutes, and is tried elsewhere.
        stages,
        ROOT,
        tmp_path,
        unpack,
        {"STOMP_GATEWAY_PURE": "1"},
    )
    image = stages[-1]
    container = Container(root, image)
    try:
        until(container, lambda: container.healthy() == 0)
        assert container.user_of_process() == "7672"
        assert container.run("python3", "-c", CLIENT, "guest", "guest").stdout == "received\n"
        users = container.run("imqusermgr", "list").stdout
        assert "guest" in users
        container.signal(signal.SIGHUP)
        log = root / "var/lib/stomp-gateway/instances/imqbroker/log/log.txt"
        until(container, lambda: "users were read again" in log.read_text())
        container.signal(signal.SIGTERM)
        assert container.process.wait(PATIENCE) == 0
        assert container.healthy() != 0
    finally:
        container.process.kill()
        container.process.wait()


def until(container: Container, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert container.process.poll() is None, "it has ended"
        assert time.monotonic() < end
        time.sleep(0.2)


class Container:
    """A process as the image says it."""

    def __init__(self, root: Path, image: containerfile.Stage) -> None:
        self._image = image
        self._variables = [f"{name}={value}" for name, value in image.environment.items()]
        self.process = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec"),
                'mount --make-rprivate /; cd "$1"; mount -t proc proc proc; mount --rbind /dev dev; '
                "ip link set lo up; user=$2 folder=$3; shift 3; "
                'exec chroot --userspec="$user:$user" . /usr/bin/env -i --chdir="$folder" "$@"',
                *("sh", str(root), image.user, image.workdir, *self._variables),
                *image.entrypoint,
                *image.command,
            ]
        )
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        while not (found := children.read_text().split()):
            time.sleep(0.05)
        self._pid = int(found[0])

    def signal(self, number: signal.Signals) -> None:
        subprocess.run(["kill", f"-{int(number)}", str(self._pid)], check=True)

    def user_of_process(self) -> str:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))

    def healthy(self) -> int:
        return self.run(*self._image.health).returncode

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as its user."""
        return subprocess.run(
            [
                *("nsenter", "-t", str(self._pid), "--mount", "--pid", "--net", "--root"),
                *("setpriv", "--reuid=7672", "--regid=7672", "--clear-groups"),
                *("env", "-i", *self._variables, *command),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
