"""A Spark standalone cluster on 127.0.0.1: a master and one worker, as an operator starts them from
pip's PySpark.

Owns these two processes. The worker has one core, and an environment without what this process
knows of Python: so what an executor has, it was given by whoever submits a job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyspark

from tests.crash.waiting import until
from tests.gateway_process import HOST, ROOT, free_port
from tests.pipeline.conftest import QUICK

_BIN: Final = Path(pyspark.__file__).parent / "bin"
_CORES, _MEMORY = 1, "1g"
#: Small and quick: an executor that fits into the worker, few tasks, and less work for the
#: compilers than it would save.
SETTINGS: Final = {
    "spark.executor.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}


class Cluster:
    """The cluster.

    As a context manager it is there when the body begins, and gone when it ends.

    :param folder: for its logs, and what executors write. :ivar url: for ``--master``.
    """

    def __init__(self, folder: Path) -> None:
        port, self._page = free_port(), free_port()
        self.url = f"spark://{HOST}:{port}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYSPARK", "PYTHON", "SPARK"))
        }
        self._environment = {
            **own,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }
        self._master = (
            "master.Master",
            "--host",
            HOST,
            "--port",
            str(port),
            "--webui-port",
            str(self._page),
        )
        work = str(folder / "work")
        self._worker = (
            "worker.Worker",
            "--host",
            HOST,
            "--cores",
            str(_CORES),
            "--memory",
            _MEMORY,
            "--work-dir",
            work,
        )

    def __enter__(self) -> Self:
        try:
            self._start(*self._master)
            self._start(*self._worker, "--webui-port", str(free_port()), self.url)
            until(
                lambda: self._told().get("aliveworkers") == 1,
                lambda: f"the cluster did not start:\n{self.log}",
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def run(
        self, *arguments: str, folder: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """``gateway-pipeline JOB ... --master URL`` in a folder that has nothing of ours. :returns:
        its exit status and output.
        """
        given = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        program = "import sys; from pipeline.command import main; sys.exit(main())"
        command = (
            sys.executable,
            "-c",
            program,
            *arguments,
            "--master",
            self.url,
            "--memory",
            "600m",
            *given,
        )
        return self._done(command, folder, environment)

    def submit(
        self, *arguments: str, folder: Path, packages: Path
    ) -> subprocess.CompletedProcess[str]:
        """``spark-submit --master URL --py-files PACKAGES pipeline/__main__.py JOB ...``, as
        :meth:`run`.
        """
        given = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        options = (
            "--master",
            self.url,
            "--driver-memory",
            "600m",
            "--py-files",
            str(packages),
            *given,
        )
        command = (
            str(_BIN / "spark-submit"),
            *options,
            str(ROOT / "pipeline" / "__main__.py"),
            *arguments,
        )
        # Its driver's Python; spark-submit takes python3 if it is told nothing.
        return self._done(command, folder, {"PYSPARK_PYTHON": sys.executable})

    def finished(self) -> list[str]:
        """The names of the applications that had executors here and have ended, in their order."""
        return [
            each["name"]
            for each in sorted(
                self._told()["completedapps"], key=lambda each: int(each["starttime"])
            )
        ]

    @property
    def log(self) -> str:
        """What the master and the worker have printed, and the executors' errors."""
        files = [*self._folder.glob("*.log"), *self._folder.glob("work/*/*/stderr")]
        return "".join(path.read_text(errors="replace")[-5000:] for path in files)

    def _done(
        self, command: tuple[str, ...], folder: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        env = {**self._environment, **environment}
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
        )

    def _start(self, name: str, *arguments: str) -> None:
        # spark-class becomes Java's process by exec, so its pid is that of the master or worker.
        command = (str(_BIN / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments)
        with (self._folder / f"{name}.log").open("wb") as log:
            environment = {**self._environment, "SPARK_HOME": str(_BIN.parent)}
            self._processes.append(
                subprocess.Popen(command, env=environment, cwd=self._folder, stdout=log, stderr=log)
            )

    def _told(self) -> dict[str, Any]:
        """What the master's page says; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=10) as answer:
                told = json.load(answer)
        except (OSError, json.JSONDecodeError):  # while it starts its page has other things to say
            return {}
        assert isinstance(told, dict)
        return told

    def _end(self) -> None:
        # The worker first: it ends its executors.
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)
