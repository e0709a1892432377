"""A streaming query that is killed by SIGKILL while messages flow: its sink has each message once.

The driver and its Java machine are killed together; its Python workers are left to find out by
themselves, as they are in life, so that the next run meets what they still do. The last run is left
to end. The sink is Parquet, read as Spark reads it: by the files that its log names.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow.parquet as pq
import pytest

from tests.gateway_process import ROOT
from tests.pipeline.datasource.brokers import Broker
from tests.servers import activemq

pytestmark = pytest.mark.brokers

#: How long a query may take to start, or to move what there is, in seconds.
PATIENCE = 240.0


def named(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


class Feeder(threading.Thread):
    """Sends numbered messages, a few at a time, as many as it was allowed to; then fewer, so that a
    moment that is waited for comes.

    A machine that is slow would never come to the end of more.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._over = threading.Event()
        self._allowed = 0
        self.sent = 0

    def allow(self, more: int) -> None:
        self._allowed += more

    def run(self) -> None:
        while not self._over.wait(0.02 if self.sent < self._allowed else 0.5):
            self._broker.fill([str(number) for number in range(self.sent, self.sent + 20)])
            self.sent += 20

    def stop(self) -> int:
        """:returns: how many messages there are."""
        self._over.set()
        self.join()
        return self.sent


class Query:
    """The query in a child process.

    :param end: whether it ends when it has moved what there is.
    """

    def __init__(
        self, broker: Broker, folder: Path, options: dict[str, str], end: bool = False
    ) -> None:
        self.folder = folder
        what = {"folder": str(folder), "options": broker.queue | options, "end": end}
        self._output = (folder / "said.txt").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.datasource.crashing", json.dumps(what)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def running(self) -> bool:
        return self._process.poll() is None

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it, while the query runs.

        :raises AssertionError: the query ended, with what it said; or it does not come.
        """
        until = time.monotonic() + PATIENCE
        while not condition():
            assert self.running(), self.said
            assert time.monotonic() < until, f"{what}: not within {PATIENCE:g} s\n{self.said}"
            time.sleep(0.01)

    def until_ended(self) -> None:
        """:raises AssertionError: it does not end, or ended badly."""
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end within {PATIENCE:g} s\n{self.said}") from None
        assert self._process.returncode == 0, self.said

    @property
    def said(self) -> str:
        return (self.folder / "said.txt").read_text(errors="replace")[-5000:]

    def has_java(self) -> bool:
        return bool(_java(self._tree()))

    def _tree(self) -> list[psutil.Process]:
        """What it has started, at any depth."""
        return psutil.Process(self._process.pid).children(recursive=True) if self.running() else []

    def kill(self) -> list[psutil.Process]:
        """SIGKILL for driver and Java machine, as far as they are there.

        :returns: the workers, which are left.
        """
        tree = self._tree()
        java = _java(tree)
        for one in java:
            one.kill()
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(java, PATIENCE)
        self._output.close()
        return [one for one in tree if one not in java]


def _java(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if named(one) == "java"]


def moments(folder: Path) -> list[Callable[[], bool]]:
    """What to see before the query is killed: somewhere in the life of a micro-batch."""

    def more(pattern: str) -> Callable[[], bool]:
        before = set(folder.glob(pattern))
        return lambda: bool(set(folder.glob(pattern)) - before)

    patterns = (
        "staging/*.tmp",
        "staging/*.arrow",
        "staging/*.settled",
        "checkpoint/offsets/*",
        "checkpoint/commits/*",
        "sink/*.parquet",
    )
    return [more(pattern) for pattern in (*patterns, "sink/_spark_metadata/*", "staging/ids/*")]


def sink(folder: Path) -> list[str]:
    paths: set[str] = set()
    for log in (folder / "sink" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            paths.add(unquote(urlsplit(json.loads(line)["path"]).path))
    return [
        body.decode()
        for path in paths
        for body in pq.read_table(path, columns=["body"]).column("body").to_pylist()
    ]


def kill_and_count(broker: Broker, folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    feeder = Feeder(broker)
    feeder.start()
    left: list[psutil.Process] = []
    query: Query | None = None
    try:
        for _ in range(kills):
            feeder.allow(1500)
            query = Query(
                broker, folder, {"partitions": "2", "batchSize": "200", "maxSeconds": "2"}
            )
            # It has done something since its start, and then it is somewhere.
            query.until(moments(folder)[4], "a micro-batch is done")
            query.until(chance.choice(moments(folder)), "a moment to kill it")
            time.sleep(chance.random() * 0.1)
            assert query.has_java(), query.said
            left += query.kill()
        sent = feeder.stop()
        # What a worker that was left has in its hands it stages, or gives back when it finds that
        # nobody listens.
        _, alive = psutil.wait_procs(left, PATIENCE)
        assert not alive, f"workers do not find out that nobody listens: {alive}"
        query = Query(broker, folder, {"partitions": "2"}, end=True)
        query.until_ended()
    finally:
        feeder.stop()
        if query is not None:
            left += query.kill()
        for one in left:
            if one.is_running():
                one.kill()
    found = sorted([int(body) for body in sink(folder)])
    assert found == list(range(sent)), (
        f"seed {seed}: {len(found)} of {sent} messages, {len(found) - len(set(found))} repeated"
    )
    assert broker.waiting() == []


def test_a_query_is_killed(gateway: Broker, tmp_path: Path) -> None:
    kill_and_count(gateway, tmp_path, 3, random.randrange(1 << 32))


@pytest.mark.long
@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_a_query_is_killed_again_and_again(gateway: Broker, tmp_path: Path, peer: str) -> None:
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    kill_and_count(broker, tmp_path, 20, random.randrange(1 << 32))
