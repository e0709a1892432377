"""A Spark Connect server on loopback, in a process of its own.

It has what is installed here, as the pages ask for, so that it can run the data source.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from tests.crash.waiting import until
from tests.gateway_process import HOST, ROOT, free_port
from tests.pipeline.conftest import SETTINGS, SHORT

_SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"


class ConnectServer(NamedTuple):
    """A server that listens.

    :param address: ``sc://HOST:PORT``.
    """

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Run a server.

    :param folder: where it works and keeps what it writes, and its ``server.log``.
    """
    port = free_port()
    given = {
        **SETTINGS,
        **SHORT,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    settings = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    command = (
        *(str(_SUBMIT), "--master", "local[2]", "--driver-memory", "1g"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *settings,
    )
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": HOST,
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            until(lambda: server.poll() is not None or _listens(port), "it never listened")
            assert server.poll() is None, (folder / "server.log").read_text()[-5000:]
            yield ConnectServer(f"sc://{HOST}:{port}", server)
        finally:
            server.terminate()
            server.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
