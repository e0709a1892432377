"""The package, and a machine with systemd on which it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.machine import SYSTEMD, CannotBoot, Machine, needs_root
from tests.test_wheel import built, has_these_sources

ROOT = Path(__file__).parents[2]
DEBIANS_PYTHON = Path("/usr/bin/python3")
#: In the environment: a package that was built before.
BUILT = "STOMP_GATEWAY_DEB"
DEB = "/tmp/stomp-gateway.deb"


def made_wheel(folder: Path) -> Path:
    """The wheel of these sources, compiled where ``make`` has made it."""
    made = [path for path in (ROOT / "build" / "wheel").glob("*.whl") if has_these_sources(path)]
    return made[0] if made else built(folder, pure="1")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package: the one that the environment names, or a new one."""
    needs_root()
    if BUILT in os.environ:
        return Path(os.environ[BUILT])
    minor = subprocess.run(
        [DEBIANS_PYTHON, "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    if minor.strip() != str(sys.version_info[:2]):
        pytest.skip("the package is for Debian's Python, which is another one than this")
    folder = tmp_path_factory.mktemp("package")
    done = subprocess.run(
        [ROOT / "packaging" / "debian" / "build", made_wheel(folder), folder / "deb"],
        env={
            **os.environ,
            "PIP": f"{sys.executable} -m pip",
            "EXTRAS": "",
            "COMPRESSION": "none",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = (folder / "deb").glob("*.deb")
    return made


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with systemd."""
    needs_root()
    base = tmp_path_factory.mktemp("machine")
    try:
        machine = Machine(base, init=SYSTEMD).__enter__()
    except CannotBoot as why:
        pytest.skip(f"no systemd can be booted here: {why}")
    # Images of containers have it, to keep packages from starting what they install.
    machine.path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
    try:
        yield machine
    finally:
        machine.__exit__(None, None, None)


@pytest.fixture(scope="module")
def installed(booted: Machine, package: Path) -> Machine:
    """A machine with systemd and the package, as ``dpkg`` leaves it.

    All tests of a file share it, so each leaves it as it was; the last one may remove the package.
    """
    shutil.copy(package, booted.path(DEB))
    booted.run("dpkg", "-i", DEB)
    return booted
