"""A process that moves messages in XA branches is killed at named points: recovered by what it had
decided, each message is there once.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.messaging.destination import Destination
from gateway.messaging.provider import Mode
from tests.crash.xa_child import BATCH, MESSAGES, SOURCE, TARGET
from tests.gateway.broker.brokers import Client, Deployment, settled_down

#: Each point early and late, where the batch is one of a preparation, of a commit in one phase, or
#: of one in two.
POINTS = [
    f"{point}:{number}"
    for point in (
        "broker.before-submit",
        "store.before-commit",
        "store.after-commit",
        "broker.before-receipts",
    )
    for number in (4, 5, 9)
] + [
    "store.mid-batch:3",
    "store.mid-batch:4",
    "store.mid-batch:9",
    "broker.after-receipts:4",
    "broker.after-receipts:9",
]


async def waiting(client: Client, queue: Destination) -> list[int]:
    """What waits there; it is given back."""
    session = client.session(Mode.CLIENT)
    inbox = client.consumer(session, queue, credit=10 * MESSAGES)
    physical = client.deployment.broker.queue(queue)
    await inbox.count(physical.count - physical.dispatch.locked)
    await settled_down(reactor)
    session.close()
    return [int(body) for body in inbox.texts]


async def killed_at(folder: Path, point: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.crash.xa_child", str(folder), point, "guest"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = ran.stdout.split("\n")
    assert ran.returncode == -signal.SIGKILL, ran.stdout + ran.stderr
    decided = {int(line.split()[1]) for line in said if line.startswith("decided")}
    committed = {int(line.split()[1]) for line in said if line.startswith("committed")}
    deployment = Deployment(reactor, folder, "sqlite")
    client = await deployment.connect()
    resource = client.connection.xa_session().resource()
    in_doubt = list(await resource.recover())
    assert len(in_doubt) <= 1
    if in_doubt and len(committed) % 3:
        # Nobody is given anything of it, for as long as it takes.
        assert (
            len(await waiting(client, SOURCE)) + len(await waiting(client, TARGET))
            == MESSAGES - BATCH
        )
        await client.close()
        await deployment.reopen()
        client = await deployment.connect()
        resource = client.connection.xa_session().resource()
        assert await resource.recover() == in_doubt
    for xid in in_doubt:
        number = int(xid.gtrid)
        assert number not in committed
        await (resource.commit(xid, False) if number in decided else resource.rollback(xid))
    committed |= decided
    assert await resource.recover() == []
    source, target = await waiting(client, SOURCE), await waiting(client, TARGET)
    if "filled" in said:
        assert sorted(source + target) == list(range(MESSAGES)), "lost or doubled"
    assert source == sorted(set(source))
    assert target == list(range(len(target))), "out of order"
    assert len(target) % BATCH == 0
    assert len(target) >= BATCH * len(committed)
    await client.close()
    await deployment.close()


@pytest.mark.parametrize("point", POINTS)
@pytest_twisted.ensureDeferred
async def test_killed_at(point: str, tmp_path: Path) -> None:
    await killed_at(tmp_path, point)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
@pytest_twisted.ensureDeferred
async def test_killed_at_again_and_again(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    await killed_at(
        tmp_path, f"{choose.choice(POINTS).partition(':')[0]}:{choose.randrange(2, 24)}"
    )
