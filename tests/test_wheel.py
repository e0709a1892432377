"""The wheel: what is in it, and that it works where nothing else is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway

ROOT = Path(__file__).parents[1]
COMMANDS = ("stomp-gateway", "imqkeytool", "imqusermgr")
NOT_SOURCES = shutil.ignore_patterns(
    ".*", "__pycache__", "var", "build", "dist", "*.egg-info", "node_modules", "_build", "dropin.cache"
)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because setuptools leaves files beside the sources; the copy has the tests too."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCES)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder / "dist", folder / "source", cwd=folder)
    [built] = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment in which only the wheel and what it needs are installed."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(folder / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return folder / "venv" / "bin"


def sources() -> Iterator[str]:
    """What must be in the wheel: every module, and what they read."""
    for package in ("gateway", "certs"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in {".py", ".sql"} or path.name == "py.typed":
                yield path.relative_to(ROOT).as_posix()
    yield "twisted/plugins/stomp_gateway_plugin.py"


def test_the_wheel_has_our_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = f"stomp_gateway-{gateway.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"gateway", "certs", "twisted", metadata}
    assert {name for name in names if not name.startswith(metadata)} == set(sources())
    assert f"{metadata}/licenses/LICENSE" in names


@pytest.mark.parametrize("command", COMMANDS)
def test_an_installed_command_shows_its_help(installed: Path, command: str) -> None:
    assert "--help" in run(installed / command, "--help", cwd=installed)


def test_twistd_finds_the_plugin(installed: Path) -> None:
    assert "stomp-gateway" in run(installed / "twistd", "--help", cwd=installed)
    assert "--varhome" in run(installed / "twistd", "stomp-gateway", "--help", cwd=installed)


def test_the_tests_are_not_installed(installed: Path) -> None:
    program = "import importlib.util as u; print([name for name in ('tests', 'benchmarks') if u.find_spec(name)])"
    assert run(installed / "python", "-c", program, cwd=installed).strip() == "[]"
