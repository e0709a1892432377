"""The wheel, compiled and pure: what is in it, and that it works where nothing else is
installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway
from tests.hot_modules import hot_modules

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
COMMANDS = ("stomp-gateway", "imqkeytool", "imqusermgr", "imqdbmgr", "imqbridgemgr")
NOT_SOURCES = shutil.ignore_patterns(
    ".*",
    "__pycache__",
    "var",
    "build",
    "dist",
    "*.egg-info",
    "node_modules",
    "_build",
    "dropin.cache",
)


SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def built(folder: Path, pure: str) -> Path:
    """A wheel, from a copy, because setuptools leaves files beside the sources; the copy has the
    tests too. The compiler does not optimise, which takes most of its time.
    """
    shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCES)
    compiler = folder / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    command = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--wheel-dir",
        folder / "dist",
        folder / "source",
    )
    run(*command, cwd=folder, STOMP_GATEWAY_PURE=pure, CC=str(compiler))
    [wheel] = (folder / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With compiled modules: that which ``make compiled`` has made of these very sources, or one
    that is built now.

    ``tests/install-packages`` sees to the compiler.
    """
    made = [path for path in (ROOT / "build" / "wheel").glob("*.whl") if has_these_sources(path)]
    return made[0] if made else built(tmp_path_factory.mktemp("wheel"), pure="")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment in which only the wheel and what it needs are
    installed.
    """
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "venv")
    # Python compiles what is imported, which is a small part.
    run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=folder)
    return folder / "venv" / "bin"


def sources() -> Iterator[str]:
    """What must be in the wheel: every module, and what they read."""
    for package in ("gateway", "bridge", "certs", "pipeline"):
        for path in (ROOT / package).rglob("*"):
            if (
                path.suffix
                in {".py", ".sql", ".dtd", ".java", ".jar", ".html", ".js", ".css", ".svg"}
                or path.name == "py.typed"
                or path.parent.name == "vendored"
            ):
                yield path.relative_to(ROOT).as_posix()
    yield "twisted/plugins/stomp_gateway_plugin.py"


def contents(wheel: Path) -> set[str]:
    """What is in the wheel but its metadata, which has the license."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = f"stomp_gateway-{gateway.__version__}.dist-info/"
    assert f"{metadata}licenses/LICENSE" in names
    assert f"{metadata}sboms/vendored.cdx.json" in names
    return {name for name in names if not name.startswith(metadata)}


def has_these_sources(wheel: Path) -> bool:
    """Whether it is compiled, and was made of what the sources and settings are now."""
    if any(
        (ROOT / name).stat().st_mtime > wheel.stat().st_mtime
        for name in ("setup.py", "setup.cfg", "pyproject.toml")
    ):
        return False
    with zipfile.ZipFile(wheel) as archive:
        all_names = {name for name in archive.namelist() if ".dist-info/" not in name}
        names = {name for name in all_names if not name.endswith(SUFFIX)}
        same = names == set(sources()) and all(
            archive.read(name) == (ROOT / name).read_bytes() for name in names
        )
        return same and names != all_names


def test_the_pure_wheel_has_our_packages_and_nothing_else(tmp_path: Path) -> None:
    wheel = built(tmp_path, pure="1")
    assert wheel.name == f"stomp_gateway-{gateway.__version__}-py3-none-any.whl"
    assert contents(wheel) == set(sources())


def test_the_compiled_wheel_has_the_same_and_compiled_modules(wheel: Path) -> None:
    this = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"stomp_gateway-{gateway.__version__}-{this}-{this}")
    compiled = {name.replace(".", "/") + SUFFIX for name in hot_modules()}
    assert contents(wheel) == {*sources(), *compiled, f"stomp_gateway__mypyc{SUFFIX}"}


def test_the_compiled_modules_are_those_that_are_imported(installed: Path) -> None:
    program = "import importlib, sys; print([importlib.import_module(name).__file__.endswith(sys.argv[1]) for name in sys.argv[2:]])"
    found = run(installed / "python", "-c", program, SUFFIX, *hot_modules(), cwd=installed)
    assert found.strip() == str([True] * len(hot_modules()))


def test_no_compiled_module_names_a_folder_of_the_machine_that_built_it(installed: Path) -> None:
    """Another machine may have anything there."""
    program = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    modules = (*hot_modules(), "stomp_gateway__mypyc")
    found = run(installed / "python", "-c", program, *modules, cwd=installed).split()
    said = run("readelf", "--dynamic", *found, cwd=installed)
    assert said.count("Dynamic section") == len(modules)
    assert [line for line in said.splitlines() if "RPATH" in line or "RUNPATH" in line] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_an_installed_command_shows_its_help(installed: Path, command: str) -> None:
    assert "--help" in run(installed / command, "--help", cwd=installed)


def test_twistd_finds_the_plugin(installed: Path) -> None:
    assert "stomp-gateway" in run(installed / "twistd", "--help", cwd=installed)
    assert "--varhome" in run(installed / "twistd", "stomp-gateway", "--help", cwd=installed)


def test_the_tests_are_not_installed(installed: Path) -> None:
    program = "import importlib.util as u; print([name for name in ('tests', 'benchmarks') if u.find_spec(name)])"
    assert run(installed / "python", "-c", program, cwd=installed).strip() == "[]"
