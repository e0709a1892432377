"""The wheel ``pyspark-stomp``: what is in it, and that it works alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

import gateway
from pipeline.datasource import wheel
from pipeline.datasource.wheel import NotCarried, build, carried
from tests.crash.waiting import until
from tests.gateway_process import HOST, ROOT, free_port
from tests.pipeline.conftest import QUICK, SETTINGS
from tests.pipeline.datasource.brokers import Broker

pytestmark = pytest.mark.process

ALONE: Final = Path(__file__).with_name("alone.py")
SENT: Final = [["m0", "0"], ["m1", "1"], ["m2", "2"]]
OURS: Final = "pyspark_stomp._vendor."
OWN_SETTINGS: Final = {
    **SETTINGS,
    "spark.driver.memory": "600m",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.ui.enabled": "false",
}


def links(root: str) -> Iterator[Path]:
    """What a requirement, and all that it needs, have installed here."""
    site = Path(str(metadata.distribution("pyspark").locate_file(".")))
    missing, seen = [Requirement(root)], set()
    while missing:
        wanted = missing.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        found = metadata.distribution(wanted.name)
        yield from {
            site / path.parts[0]
            for path in found.files or []
            if path.parts[0] not in ("..", "__pycache__")
        }
        extras = wanted.extras or {""}
        for text in found.requires or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": each}) for each in extras):
                missing.append(need)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def environment(folder: Path, built: Path, *requirements: str) -> Path:
    """The Python of an environment with the wheel, and links to others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for root in requirements:
        for path in links(root):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    python = folder / "bin" / "python"
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    command = (sys.executable, "-m", "pip", "--python", python, "install", *options, built)
    subprocess.run(command, check=True)
    return python


def run(
    python: Path, where: str, options: dict[str, str], *more: str, **variables: str
) -> dict[str, Any]:
    """What :mod:`tests.pipeline.datasource.alone` has found."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "PYTHON", "SPARK"))
    }
    own |= {"SPARK_LOCAL_IP": HOST, "SETTINGS": json.dumps(OWN_SETTINGS), **variables}
    command: list[str | Path] = [python, ALONE, where, json.dumps(options), *more]
    done = subprocess.run(
        command, env=own, cwd=python.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@contextmanager
def connect_server(python: Path, folder: Path) -> Iterator[str]:
    """A server of Spark Connect whose workers have this Python."""
    [spark] = python.parents[1].glob("lib/python*/site-packages/pyspark")
    port = free_port()
    settings = {
        **OWN_SETTINGS,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [str(spark / "bin" / "spark-submit"), "--master", "local[1]", "--class"]
    command.append("org.apache.spark.sql.connect.service.SparkConnectServer")
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    own = {**os.environ, "SPARK_HOME": str(spark), "SPARK_LOCAL_IP": HOST}
    own |= {"PYSPARK_PYTHON": str(python)}
    log = folder / "connect.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=own, cwd=folder, stdout=file, stderr=file
        )
    try:
        until(
            lambda: "Spark Connect server started at" in log.read_text(),
            lambda: log.read_text()[-5000:],
        )
        yield f"sc://{HOST}:{port}"
    finally:
        server.terminate()
        server.wait(60)


def test_it_is_found_without_being_registered(gateway: Broker, tmp_path: Path, built: Path) -> None:
    python = environment(tmp_path / "venv", built, "pyspark", "pyarrow")
    found = run(python, "local[1]", gateway.queue)
    assert found["importable"] == ["pyspark_stomp"]
    assert found["alone"] == SENT
    assert f"{OURS}pipeline.datasource.errors.OptionError: option color" in found["refused"]


@pytest.mark.long
def test_it_is_found_by_a_server_of_spark_connect(
    gateway: Broker, tmp_path: Path, built: Path
) -> None:
    python = environment(tmp_path / "venv", built, "pyspark[connect]")
    missing = subprocess.run([python, "-c", "import twisted"], cwd=tmp_path, capture_output=True)
    assert b"No module named 'twisted'" in missing.stderr
    with connect_server(python, tmp_path) as address:
        found = run(Path(sys.executable), address, gateway.queue)
    # The client needs nothing of it.
    assert "pyspark_stomp" not in found["importable"]
    assert found["alone"] == SENT
    assert f"{OURS}pipeline.datasource.errors.OptionError: option color" in found["refused"]


@pytest.mark.long
def test_it_stands_beside_the_gateways_own(gateway: Broker, tmp_path: Path, built: Path) -> None:
    python = environment(tmp_path / "venv", built, "pyspark", "pyarrow")
    found = run(python, "local[1]", gateway.queue, "register", PYTHONPATH=str(ROOT))
    assert found["alone"] == found["registered"] == found["again"] == SENT
    # Who registers it has the registered one.
    assert "pipeline.datasource.errors.OptionError: option color" in found["refused"]
    assert OURS not in found["refused"]


def test_it_owns_one_package_and_names_nothing_outside(built: Path) -> None:
    assert built.name == f"pyspark_stomp-{gateway.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        texts = {name: archive.read(name).decode() for name in names}
    about = f"pyspark_stomp-{gateway.__version__}.dist-info/"
    assert {name.split("/")[0] for name in names} == {"pyspark_stomp", about.rstrip("/")}
    assert f"{about}licenses/LICENSE" in names
    needs = [
        line for line in texts[f"{about}METADATA"].splitlines() if line.startswith("Requires-Dist")
    ]
    assert [line.split()[1] for line in needs] == ["pyspark", "pyarrow"]
    # Not the whole gateway: what the data source does not import is not there.
    assert "pyspark_stomp/_vendor/gateway/stomp/wire/parser.py" in names
    assert [name for name in names if "/gateway/broker/" in name or "/pipeline/jobs/" in name] == []


def test_it_is_the_same_when_it_is_built_again(built: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == built.read_bytes()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import twisted.internet\n", "pipeline.a imports twisted.internet, expected pyspark"),
        ("def f():\n    import pipeline.b\n", "pipeline.a:2 expected: from pipeline.b import"),
        (
            "from pipeline import missing\nfrom pipeline.none import x\n",
            "pipeline.none is imported",
        ),
    ],
)
def test_what_cannot_be_carried_is_an_error(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").touch()
    (tmp_path / "pipeline" / "a.py").write_text(source)
    with pytest.raises(NotCarried, match=said):
        carried(tmp_path, "pipeline.a")


def test_what_is_imported_within_an_import_is_carried(tmp_path: Path) -> None:
    (tmp_path / "pipeline" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/c.py", "d.py"):
        (tmp_path / "pipeline" / name).touch()
    (tmp_path / "pipeline" / "a.py").write_text("from pipeline.inner import c\n")
    found = carried(tmp_path, "pipeline.a")
    assert sorted(found) == ["pipeline", "pipeline.a", "pipeline.inner", "pipeline.inner.c"]
    assert found["pipeline.a"] == f"from {wheel._VENDOR}.pipeline.inner import c\n"
