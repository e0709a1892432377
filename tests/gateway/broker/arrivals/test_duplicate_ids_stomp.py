"""What STOMP clients are told of duplicate ids that are in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.stomp.counters import Counters
from gateway.stomp.service import StompFactory
from gateway.stomp.settings import SessionOptions, TransportOptions
from tests.gateway.broker.arrivals.duplicate_ids import bearing, rest
from tests.gateway.broker.xa.xa_branches import SMALL, Branching, Q, branched, fill, xid
from tests.gateway.stomp.client import Client, Server

GOOD = "SEND\ndestination:/queue/q\nreceipt:good\n\ngood"
DOUBTFUL = "SEND\ndestination:/queue/q\n_AMQ_DUPL_ID:one\nreceipt:doubtful\n\nrepeat"
INVALID = f"SEND\ndestination:/queue/q\n_AMQ_DUPL_ID:{'x' * 1025}\nreceipt:invalid\n\ninvalid"
FULL = f"SEND\ndestination:/queue/{SMALL.name}\nreceipt:full\n\nfull"


@pytest.mark.parametrize(
    ("frames", "refused"),
    [
        ([GOOD, DOUBTFUL], "doubtful"),
        ([GOOD, DOUBTFUL, INVALID], "doubtful"),
        ([GOOD, FULL, DOUBTFUL, INVALID], "full"),
        ([GOOD, INVALID, DOUBTFUL], "invalid"),
    ],
)
def test_of_what_comes_together_that_before_the_first_refused_is_taken(
    tmp_path: Path, frames: list[str], refused: str
) -> None:
    stepped = branched(tmp_path)
    fill(stepped, 3, SMALL)
    xa = Branching(stepped)
    xa.start(xid(1))
    xa.session.send([bearing("one")])
    xa.end_and_prepare(xid(1))
    server = Server()
    server.clock, server.turn = stepped.clock, stepped.turn
    server.factory = StompFactory(
        stepped.clock,
        stepped.turn,
        stepped.provider,
        SessionOptions(),
        TransportOptions(),
        None,
        Counters(),
        lambda count: bytes(count),
    )
    client = Client(server)
    client.say("CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n")
    stepped.run_until_idle()
    client.heard()
    client.say(*frames)
    stepped.run_until_idle()
    found = [(frame.head.command, frame.head.headers.get("receipt-id")) for frame in client.heard()]
    assert found == [("RECEIPT", "good"), ("ERROR", refused)]
    xa.rollback(xid(1))
    assert rest(stepped, Q) == ["good"]
