"""Transactions that wait for a decision, in the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from gateway.messaging.destination import Queue
from gateway.messaging.provider import Flags, Vote, Xid
from tests.gateway.admin.console.serving import EVIL, Pages, Served, client, serving
from tests.gateway.admin.console.test_messages import Operator
from tests.gateway.admin.test_transactions import (
    DOUBT,
    HEURISTIC,
    SECOND,
    WAITING,
    prepare,
)
from tests.gateway.broker.brokers import Deployment, text
from tests.gateway_process import HOST, INSTANCE

pytestmark = pytest.mark.process

XIDS = [Xid(0x5354, b"global", f"branch {number}".encode()) for number in range(3)]
IDS = [f"5354.{xid.gtrid.hex()}.{xid.bqual.hex()}" for xid in XIDS]


async def _branches(folder: Path) -> None:
    """Leave a store with branches whose coordinator is gone."""
    deployment = Deployment(reactor, folder, "sqlite")
    for number, xid in enumerate(XIDS):
        made = await deployment.connect(EVIL if number == 2 else "guest")
        session = made.connection.xa_session()
        resource = session.resource()
        await resource.start(xid, Flags.NOFLAGS)
        session.send([text(Queue(f"doubt.{number}"), "x", persistent=True)])
        await resource.end(xid, Flags.SUCCESS)
        assert await resource.prepare(xid) is Vote.OK
        made.connection.close()
    await deployment.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("console")
    before = tmp_path_factory.mktemp("before")
    pytest_twisted.blockon(Deferred.fromCoroutine(_branches(before)))
    instance = folder / "var" / "instances" / INSTANCE
    prepare(instance)
    (instance / "store").mkdir()
    for file in before.glob("messages.db*"):
        shutil.copy(file, instance / "store")
    bridges = {"doubt": DOUBT, "more": DOUBT.replace("doubt", "more")}
    with serving(folder, bridges) as found:
        yield found


def act(pages: Pages, action: str) -> str:
    """Do an action by the keyboard.

    :returns: what was asked, and what came of it.
    """
    pages.browser.until(f"document.getElementById('act-{action}') !== null")
    pages.browser.run(f"document.getElementById('act-{action}').focus()")
    pages.browser.press("Enter", 13)
    pages.browser.until("document.querySelector('dialog').open")
    asked = pages.text("dialog")
    pages.confirm()
    pages.browser.until("document.querySelector('dialog [role=status]') !== null")
    told = pages.text("dialog")
    pages.close_dialog()
    return asked + told


def row(pages: Pages, id: str) -> str:
    found: str = pages.browser.run(f"document.getElementById({id!r}).innerText")
    return found


def test_transactions_of_bridges_are_ended_by_what_makes_sense(
    pages: Pages, served: Served
) -> None:
    pages.go("/console/")
    pages.until_text("Bridge doubt")
    pages.follow("Bridge doubt")
    pages.browser.until("location.pathname === '/console/transactions'")
    pages.ready()
    assert "here: COMMITTED\ngone (not configured): WAITING" in row(pages, f"t-doubt-{WAITING}")
    assert "Commit" not in row(pages, f"t-doubt-{HEURISTIC}")
    assert "Forget" not in row(pages, f"t-doubt-{WAITING}")
    told = act(pages, f"rollback-transaction-doubt-{WAITING}")
    assert "against the decision? The rest is committed already" in told
    assert f"imqbridgemgr rollback transaction -bn doubt -tid {WAITING}" in told
    told = act(pages, f"commit-transaction-doubt-{SECOND}")
    assert "For a broker that never comes back" in told
    assert "It is over." in told
    told = act(pages, f"forget-transaction-doubt-{HEURISTIC}")
    assert "after that nothing tells of it" in told
    assert (
        f"did in the console: imqbridgemgr commit transaction -bn doubt -tid {SECOND}: It is over."
        in (served.log())
    )
    assert pages.browser.console == []


def test_branches_of_the_broker_are_ended_and_forgotten(pages: Pages, served: Served) -> None:
    pages.go("/console/transactions")
    assert "PREPARED" in row(pages, f"b-{IDS[0]}")
    told = act(pages, f"commit-txn-{IDS[0]}")
    assert "without its coordinator? What it has sent is delivered" in told
    assert f"imqcmd commit txn -n {IDS[0]}" in told
    assert "What it has sent is thrown away" in act(pages, f"rollback-txn-{IDS[1]}")
    with client(served) as consumer:
        assert consumer.left("/queue/doubt.0") == ["x"]
    with client(served) as consumer:
        assert consumer.left("/queue/doubt.1") == []
    pages.go("/console/transactions")
    assert "HEURISTIC_COMMIT" in row(pages, f"b-{IDS[0]}")
    assert "It is forgotten." in act(pages, f"forget-txn-{IDS[0]}")
    pages.go("/console/transactions")
    assert pages.browser.run(f"document.getElementById('b-{IDS[0]}')") is None


def test_who_only_looks_ends_nothing(served: Served) -> None:
    vera, otto = Operator(served, "vera"), Operator(served, "otto")
    shown = served.ask("/console/transactions", cookie=vera.cookie)
    assert (shown.status, IDS[2] in shown.text, "act/" in shown.text) == (200, True, False)
    for who in (vera, otto):
        if who is otto:
            otto.csrf = vera.csrf
        for action, form, command in (
            ("commit-txn", {"xid": IDS[2]}, f"imqcmd commit txn -n {IDS[2]}"),
            (
                "rollback-transaction",
                {"bridge": "more", "id": WAITING},
                f"imqbridgemgr rollback transaction -bn more -tid {WAITING}",
            ),
        ):
            assert who.send(f"act/{action}", **form).status == 403
            name = "vera" if who is vera else "otto"
            assert (
                f"audit: {name} from {HOST} was refused in the console: {command}" in served.log()
            )
    otto = Operator(served, "otto")
    assert "may still end it" in otto.send("act/forget-txn", xid=IDS[2]).text


def test_the_page_is_accessible_and_only_text(pages: Pages, served: Served) -> None:
    for dark in (False, True):
        pages.go("/console/transactions", dark=dark)
        assert pages.faults() == []
    pages.until_text(EVIL)
    pages.go("/console/transactions", width=360)
    assert pages.browser.run("document.documentElement.scrollWidth") <= 360
    assert "evil" not in pages.browser.run("document.title")
    assert pages.browser.console == []
