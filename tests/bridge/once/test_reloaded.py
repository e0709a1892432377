"""A bridge whose file is read again while a transaction of one of its links hangs."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from bridge import jms_bridge
from bridge.link import link as links
from bridge.status import LinkState
from gateway.broker.xa.resource import EmbeddedXAResource
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Xid
from tests.bridge.test_jms_bridge import Place, document, link, with_place
from tests.contract.waiting import until

NUMBERS = [str(number) for number in range(20)]
#: Of several resource managers, as far as the bridge knows: so each transaction has two phases.
SEVERAL = '<connection-factory ref-name="several" multi-rm="true"/>'


def once(size: int) -> str:
    """A file with one transacted link. :param size: messages of a batch."""
    more = f'transacted="true" max-batch-time="20" max-batch-size="{size}"'
    return document(link("one", "a", "b", more, of="several", to="several"), factories=SEVERAL)


@with_place
async def test_a_link_that_is_made_anew_does_not_overtake_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    monkeypatch.setattr(jms_bridge, "START_S", 0.05)
    hanging: list[Deferred[None]] = []
    commit = EmbeddedXAResource.commit

    def hangs(resource: EmbeddedXAResource, xid: Xid, one_phase: bool) -> Deferred[None]:
        if hanging:
            return commit(resource, xid, one_phase)
        hanging.append(Deferred())
        # Its session may be closed by then, and was not when it was asked.
        return hanging[0].addCallback(lambda _: resource._known.commit(xid, one_phase))

    monkeypatch.setattr(EmbeddedXAResource, "commit", hangs)
    await place.send("A", *NUMBERS)
    await place.started(once(5))
    await until(lambda: hanging)
    before = place.link("one")
    place.write(once(7))
    await place.bridge.reload()
    assert place.link("one") is not before
    assert place.states() == {"one": LinkState.STARTING}
    assert place.link("one").status().transaction_state == "COMMITTING"
    client = await place.seam.connect()
    inbox = await client.consumer(Queue("B"))
    await place.seam.quiet()
    assert [message.text for message in inbox.messages] in ([], NUMBERS[:5])
    hanging[0].callback(None)
    await inbox.count(20)
    assert [message.text for message in inbox.messages] == NUMBERS
    await client.close()
