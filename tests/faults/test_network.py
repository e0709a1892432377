"""The network between a link and its source or its target breaks at each step of the sequence, in
each way that it can.

Both brokers are gateways, each a process of its own, with messages in memory: nothing is killed
here. Between them is a proxy for each link. Each test moves all messages while the network breaks
at one step again and again, and then counts what arrived, and what the link says of itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.faults.accounting import at_least_once, at_most_once
from tests.faults.links import AT_MOST_ONCE, DUPLICATES_OK, HERE, BridgedGateway, Link, stomp
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.faults.traffic import drain, produce
from tests.gateway_process import GatewayProcess

#: A batch of more than one message. Targets get it as a transaction.
BATCH: Final = 20


@dataclass(frozen=True)
class Step:
    """A moment of the sequence, as it is seen on the wire.

    :param target: whether it is the target's connection, and not the source's.
    :param pattern: what passes.
    :param after: whether the network breaks behind it, and not before.
    """

    name: str
    target: bool
    toward: Toward
    pattern: bytes
    after: bool = True


#: A frame up to its end, and up to somewhere within it.
_WHOLE: Final = rb"[^\0]*\0"
_PART: Final = rb"[^\0]{12}"

STEPS: Final = (
    Step("while-a-message-comes", False, Toward.CLIENT, b"MESSAGE\n" + _PART),
    Step("when-a-message-has-come", False, Toward.CLIENT, b"MESSAGE\n" + _WHOLE),
    Step("while-it-is-sent", True, Toward.SERVER, b"SEND\n" + _PART),
    Step("when-it-was-sent", True, Toward.SERVER, b"SEND\n" + _WHOLE),
    Step("before-the-receipt", True, Toward.CLIENT, b"RECEIPT\n", after=False),
    Step("when-the-receipt-has-come", True, Toward.CLIENT, b"RECEIPT\n" + _WHOLE),
    Step("before-the-ack", False, Toward.SERVER, b"ACK\n", after=False),
    Step("when-the-ack-was-sent", False, Toward.SERVER, b"ACK\n" + _WHOLE),
    Step("before-the-receipt-of-the-ack", False, Toward.CLIENT, b"RECEIPT\n", after=False),
    Step("when-the-receipt-of-the-ack-has-come", False, Toward.CLIENT, b"RECEIPT\n" + _WHOLE),
)
#: What happens at a step, one after the other in one run.
FAULTS: Final = (Fault.DROP, Fault.HALF_CLOSE, Fault.DROP)


@dataclass(frozen=True)
class Case:
    """A link, and where the network breaks.

    :param silent: it carries nothing more, and nobody is told.
    """

    step: Step
    batch: int
    quality: str = DUPLICATES_OK
    silent: bool = False

    @property
    def name(self) -> str:
        how = f"{'silence-' if self.silent else ''}{self.quality.lower().replace('_', '-')}-{self.batch}"
        return f"{self.step.name}-{how}"

    @property
    def faults(self) -> tuple[Fault, ...]:
        return (Fault.SILENCE,) if self.silent else FAULTS


CASES: Final = (
    *(Case(step, batch) for batch in (1, BATCH) for step in STEPS),
    Case(Step("when-the-commit-was-sent", True, Toward.SERVER, b"COMMIT\n" + _WHOLE), BATCH),
    *(Case(step, BATCH, AT_MOST_ONCE) for step in STEPS),
    *(
        Case(step, BATCH, silent=True)
        for step in STEPS
        if step.name in ("before-the-receipt", "before-the-receipt-of-the-ack")
    ),
)


class Network:
    """Two gateways and a proxy for each link, all of which are of the first."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.far = ending.enter_context(GatewayProcess(folder / "far", store="memory"))
        self.proxies = {case.name: ending.enter_context(Proxy(self.far.port)) for case in CASES}
        self.near = ending.enter_context(
            BridgedGateway(folder / "near", [self.link(case) for case in CASES], store="memory")
        )

    def link(self, case: Case) -> Link:
        # A heart-beat is missed at twice its interval; it must not be missed because the machine is
        # busy.
        beat = {"heart_beat_ms": "3000"} if case.silent else {}
        far = stomp(f"far-{case.name}", self.proxies[case.name].port, **beat)
        source, target = (HERE, far) if case.step.target else (far, HERE)
        return Link(case.name, source, target, case.batch, case.quality)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with ExitStack() as ending:
        yield Network(tmp_path_factory.mktemp("network"), ending)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_network_breaks(case: Case, network: Network, messages: int) -> None:
    step, near, far = case.step, network.near, network.far
    link, proxy = near.links[case.name], network.proxies[case.name]
    near.until_moving(case.name)
    source, target = (near.port, far.port) if step.target else (far.port, near.port)
    # Spread over the run, which has so many batches at least.
    apart = max(1, messages // case.batch // (len(case.faults) + 1) // 2)
    if any(frame in step.pattern for frame in (b"SEND", b"MESSAGE", b"ACK")):
        apart *= case.batch  # a frame for each message

    def trigger(fault: Fault) -> Trigger:
        return Trigger(step.toward, step.pattern, fault, nth=apart + 1, after=step.after)

    waiting = proxy.when(trigger(case.faults[0]))
    producing = threading.Thread(target=produce, args=(source, link.source_queue, 1, messages))
    producing.start()
    for fault in case.faults[1:]:
        waiting.wait()
        waiting = proxy.when(trigger(fault))
    waiting.wait()
    producing.join()
    produce(source, link.source_queue, messages + 1, messages + 1)
    numbers = drain(target, link.target_queue, messages + 1)
    faults = len(case.faults)
    if case.quality == AT_MOST_ONCE:
        account = at_most_once(numbers, messages, case.batch, faults)
    elif case.silent and not step.target:
        # The source goes on believing in the dead connection for a while, and gives others what
        # follows meanwhile.
        assert set(numbers) == set(range(1, messages + 1))
        assert len(numbers) - messages <= case.batch
        return
    else:
        account = at_least_once(numbers, messages, case.batch, faults)
    told = near.until_link(case.name, lambda told: not told["in_flight"], "nothing in flight")
    counters = told["counters"]
    # One that breaks before it is ready again is a failed attempt, and no other loss.
    assert 0 < counters["reconnects"] <= faults, told
    assert account.duplicates <= counters["possible_duplicates"] <= case.batch * faults, told
    if case.quality == AT_MOST_ONCE and step.target:
        # What the source has let go and the target did not take is not gone.
        assert len(account.lost) <= sum(counters["dead"].values()), told
    assert told["last_error"], told
