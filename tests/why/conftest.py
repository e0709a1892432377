"""One gateway for all scenes: it takes longer to start than they do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.why.mute_peer import MutePeer
from tests.why.scenes import Scene

LINK = """\
<link name="{name}" transacted="false" {attributes}>
  <source connection-factory-ref="{source}" destination-ref="{name}.in"/>
  <target connection-factory-ref="{target}" destination-ref="{out}"/>
</link>
<destination ref-name="{name}.in" name="{name}.in" type="queue"/>
"""
LINKS = (
    ("mover", "here", "here", ""),
    ("off", "here", "here", 'enabled="false"'),
    ("away", "here", "there", ""),
    ("wrong", "stranger", "here", ""),
    ("idle", "here", "here", ""),
    ("full", "here", "here", ""),
    ("mute", "here", "mute", 'quality-of-service="DUPLICATES_OK"'),
)


#: One that scenes pause and stop.
SPARE = (
    '<jmsbridge name="spare">'
    '<link name="runs"><source connection-factory-ref="here" destination-ref="in"/>'
    '<target connection-factory-ref="here" destination-ref="out"/></link>'
    '<link name="halted"><source connection-factory-ref="here" destination-ref="in"/>'
    '<target connection-factory-ref="here" destination-ref="out"/></link>'
    '<connection-factory ref-name="here"/>'
    '<destination ref-name="in" name="spare.in" type="queue"/>'
    '<destination ref-name="out" name="spare.out" type="queue"/></jmsbridge>'
)


def _bridge(port: int, mute: int) -> str:
    links = "".join(
        LINK.format(
            name=name,
            source=source,
            target=target,
            attributes=attributes,
            out="full.out" if name == "full" else "out",
        )
        for name, source, target, attributes in LINKS
    )
    every = links.splitlines(keepends=True)
    first = "".join([line for line in every if "<destination " not in line])
    last = "".join([line for line in every if "<destination " in line])
    return (
        f'<jmsbridge name="moves">{first}<connection-factory ref-name="here"/>'
        f'<connection-factory ref-name="there" lookup-name="stomp://{HOST}:{port}" connect-attempts="-1" connect-attempt-interval-in-seconds="1"/>'
        f'<connection-factory ref-name="mute" lookup-name="stomp://{HOST}:{mute}" connect-attempts="-1" connect-attempt-interval-in-seconds="1">'
        '<property name="stomp.receipt-timeout" value="3"/></connection-factory>'
        '<connection-factory ref-name="stranger" username="guest" password="wrong"/>'
        f'{last}<destination ref-name="out" name="out" type="queue"/><destination ref-name="full.out" name="full.out" type="queue"/></jmsbridge>'
    )


@pytest.fixture(scope="session")
def mute() -> Iterator[MutePeer]:
    """The target of the link of that name."""
    with closing(MutePeer()) as peer:
        yield peer


@pytest.fixture(scope="session")
def _scene(tmp_path_factory: pytest.TempPathFactory, mute: MutePeer) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("why")
    spare = folder / "spare.xml"
    spare.write_text(SPARE)
    file = folder / "moves.xml"
    file.write_text(_bridge(free_port(), mute.port))
    # It has a password.
    file.chmod(0o600)
    gateway = GatewayProcess(
        folder / "var",
        settings={
            "imq.bridge.activelist": "stomp,moves,spare",
            "imq.bridge.spare.type": "jms",
            "imq.bridge.spare.xmlurl": str(spare),
            "imq.bridge.moves.type": "jms",
            "imq.bridge.moves.xmlurl": str(file),
            "imq.bridge.moves.stalled": "2",
            "imq.journal.level": "all",
            "imq.journal.segment.age": "1",
            "imq.message.expiration.interval": "1",
        },
    )
    with gateway:
        gateway.wait_for_output("is ready")
        rules = gateway.directory / "etc" / "accesscontrol.properties"
        rules.write_text(rules.read_text() + "\nqueue.secret.consume.deny.user=guest\n")
        gateway.signal(signal.SIGHUP)
        yield Scene(gateway)


@pytest.fixture
def scene(_scene: Scene) -> Scene:
    return _scene
