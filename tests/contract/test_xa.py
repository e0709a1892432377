"""XA sessions, where a provider has them (``XASession``, ``XAResource``)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from gateway.messaging.destination import Destination
from gateway.messaging.errors import XAError
from gateway.messaging.provider import Flags, Vote, XAResource, Xid
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, texts
from tests.contract.waiting import bounded


def branch() -> Xid:
    """A branch that nobody has used."""
    return Xid(0x5354, os.urandom(16), b"\x01")


async def sent(client: Client, queue: Destination, bodies: Sequence[str] | range) -> tuple[XAResource, Xid]:
    """Send in a new branch, whose association has ended. :returns: the session's resource, and the branch."""
    session, xid = client.connection.xa_session(), branch()
    resource = session.resource()
    await bounded(resource.start(xid, Flags.NOFLAGS))
    session.send(texts(queue, bodies))
    await bounded(resource.end(xid, Flags.SUCCESS))
    return resource, xid


@contract("xa")
async def test_a_branch_is_seen_after_its_commit_only(seam: Seam) -> None:
    queue = seam.queue()
    client = await seam.connect()
    resource, xid = await sent(client, queue, range(2))
    assert await bounded(resource.prepare(xid)) is Vote.OK
    assert xid in await bounded(resource.recover())
    inbox = await client.consumer(queue)
    await seam.quiet()
    assert inbox.messages == []
    await bounded(resource.commit(xid, False))
    await inbox.count(2)
    assert inbox.texts == ["0", "1"]
    assert xid not in await bounded(resource.recover())


@contract("xa")
async def test_a_branch_that_is_rolled_back_never_was(seam: Seam) -> None:
    queue = seam.queue()
    client = await seam.connect()
    resource, xid = await sent(client, queue, range(2))
    await bounded(resource.rollback(xid))
    await seam.has_left(queue, [])


@contract("xa")
async def test_a_prepared_branch_outlives_its_connection(seam: Seam) -> None:
    queue = seam.queue()
    client = await seam.connect()
    resource, xid = await sent(client, queue, ["prepared"])
    await bounded(resource.prepare(xid))
    await client.close()
    again = (await seam.connect()).connection.xa_session().resource()
    assert xid in await bounded(again.recover())
    await bounded(again.commit(xid, False))
    await seam.has_left(queue, ["prepared"])


@contract("xa")
async def test_a_branch_that_nobody_knows_cannot_be_committed(seam: Seam) -> None:
    client = await seam.connect()
    with pytest.raises(XAError):
        await bounded(client.connection.xa_session().resource().commit(branch(), False))
