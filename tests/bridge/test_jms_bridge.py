"""A JMS bridge with a real file and a real broker: its life, what fails in it, and what a reload
disturbs.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent

from bridge import jms_bridge
from bridge import jms_link as links
from bridge.config.changes import Changes
from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from bridge.config.problems import ConfigurationError
from bridge.config.settings import SETTINGS
from bridge.jms_bridge import JMSBridge
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.errors import LinkRefused
from bridge.link.status import BridgeState, LinkState, WrongState
from bridge.manager import STOP_S
from bridge.providers.jms.java_command import SETTINGS as JAVA_SETTINGS
from bridge.transformers import NoTransformer
from bridge.xa.log.opening import TransactionProperties, open_coordinator
from gateway.broker.sessions.xa_resource import EmbeddedXAResource
from gateway.instance import settings_general
from gateway.instance.redaction import Redaction
from gateway.instance.settings import Settings, SettingsError, read
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.provider import Connection, Credentials, Done, Mode, Provider, Xid
from gateway.messaging.transformer import MessageTransformer
from tests.bridge.link_pair import clock
from tests.contract.backends.embedded import EmbeddedMemory
from tests.contract.driving import Seam
from tests.contract.waiting import bounded, until
from tests.on_reactor import on_reactor

NAME = "orders"
DECLARED = (*settings_general.SETTINGS, *SETTINGS, *JAVA_SETTINGS)
PLAIN = 'transacted="false"'
NUMBERS = [str(number) for number in range(20)]


def link(
    name: str,
    source: str = "a",
    target: str = "b",
    more: str = PLAIN,
    *,
    of: str = "here",
    to: str = "here",
    into: str = "",
) -> str:
    """A link from one ``destination-ref`` to another.

    :param more: attributes.
    :param into: more attributes of its target.
    """
    return (
        f'<link name="{name}" {more}><source connection-factory-ref="{of}" destination-ref="{source}"/>'
        f'<target connection-factory-ref="{to}" destination-ref="{target}" {into}/></link>'
    )


def document(
    *links: str, factories: str = "", more: str = "", dmqs: str = "", destinations: str = "abcdefg"
) -> str:
    named = "".join(
        f'<destination ref-name="{letter}" name="{letter.upper()}" type="queue"/>'
        for letter in destinations
    )
    return f'<jmsbridge name="{NAME}" {more}>{"".join(links)}{dmqs}<connection-factory ref-name="here"/>{factories}{named}</jmsbridge>'


def stomp(ref_name: str, port: int, more: str = "") -> str:
    return (
        f'<connection-factory ref-name="{ref_name}" lookup-name="stomp://127.0.0.1:{port}" {more}/>'
    )


class Failing(MessageTransformer):
    def transform(self, message: JMSMessage, *_: Any) -> JMSMessage:
        raise ValueError("no")


class Slow:
    """The broker, which may take for ever to connect to, or to close a connection to."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.connects_never = False
        self.closes_never = False
        #: What would complete what was sent, where that takes its time; None where it does not.
        self.held: list[Callable[[], None]] | None = None

    capabilities = property(lambda self: self._provider.capabilities)
    resource = property(lambda self: self._provider.resource)

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        if self.connects_never:
            return Deferred()
        return self._provider.connect(credentials, client_id, lost).addCallback(self._connected)

    def _connected(self, connection: Any) -> Connection:
        if self.closes_never:
            connection.close = Deferred
        make = connection.session

        def session(mode: Mode) -> Any:
            made = make(mode)
            complete = made.completion

            def completion(done: Done) -> None:
                if self.held is None:
                    complete(done)
                else:
                    self.held.append(partial(complete, done))

            made.completion = completion
            return made

        connection.session = session
        opened: Connection = connection
        return opened


class Place:
    """A bridge, its file and its broker."""

    def __init__(self, folder: Path, backend: EmbeddedMemory) -> None:
        self.file = folder / "orders.xml"
        self.backend = backend
        self.seam = Seam(backend)
        self.provider = Slow(backend.provider())
        self.overrides = {
            "imq.bridge.orders.xmlurl": "orders.xml",
            "imq.bridge.admin.user": "guest",
            "imq.bridge.admin.password": "guest",
        }
        self.transformers: Mapping[str, type[MessageTransformer]] = {}
        self.logged: list[str] = []
        self.redaction = Redaction()
        self.bridge = JMSBridge(
            clock,
            NAME,
            self.settings,
            folder,
            self.provider,
            self._transformer,
            self._coordination,
            Logger(namespace="bridge.orders", observer=cast(ILogObserver, self._log)),
            self.redaction,
        )

    def settings(self) -> Settings:
        return read(DECLARED, None, [f"{name}={value}" for name, value in self.overrides.items()])[
            0
        ]

    def _coordination(self, settings: Settings) -> BackgroundRecovery:
        properties, _ = TransactionProperties.read(settings, NAME)
        log, folder = Logger(), self.file.parent
        opened = partial(
            open_coordinator,
            clock,
            folder,
            NAME,
            "instance",
            properties,
            log,
            os.urandom,
        )
        return BackgroundRecovery(clock, opened, (folder / f"txlog.{NAME}").exists, log)

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)

    def state(self) -> BridgeState:
        return self.bridge.state

    def states(self) -> dict[str, LinkState]:
        return {link.name: link.status().state for link in self.bridge.links()}

    def link(self, name: str) -> Any:
        found = self.bridge.link(name)
        assert found is not None
        return found

    async def started(self, text: str) -> None:
        self.write(text)
        await self.bridge.start()
        assert self.state() is BridgeState.STARTED

    async def reloaded(self, text: str) -> Changes:
        self.write(text)
        return await self.bridge.reload()

    async def send(self, queue: str, *bodies: str) -> None:
        client = await self.seam.connect()
        await client.send(Queue(queue), bodies)
        await client.close()

    async def moved(self, source: str, target: str, body: str = "x") -> None:
        await self.send(source, body)
        await self.seam.has_left(Queue(target), [body])

    async def waiting(self, queue: Destination, count: int) -> int:
        """Wait for so many messages, and take them. :returns: how many there were."""
        client = await self.seam.connect()
        inbox = await client.consumer(queue)
        await inbox.count(count)
        await self.seam.quiet()
        if inbox.numbers:
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
        await client.close()
        return len(inbox.messages)

    async def unused(self, client_id: str) -> None:
        client = await self.seam.connect(client_id)
        await client.close()

    def _transformer(self, name: str, where: str) -> MessageTransformer:
        if name not in self.transformers:
            raise LookupError(f"{where}={name}: there is no such class")
        return self.transformers[name]()

    def _log(self, event: LogEvent) -> None:
        self.logged.append(f"{event['log_level'].name} {formatEvent(event)}")

    async def close(self) -> None:
        self.provider.connects_never = self.provider.closes_never = False
        await self.bridge.stop()
        await self.seam.close()
        await self.backend.stop()


@pytest_twisted.async_yield_fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    backend = EmbeddedMemory()
    await backend.start(tmp_path)
    made = Place(tmp_path, backend)
    yield made
    await made.close()


@contextmanager
def nobody() -> Any:
    """The port of somebody who accepts and says nothing."""
    listening = clock.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    try:
        yield listening.getHost().port
    finally:
        listening.stopListening()


async def wrong(asked: Deferred[Any]) -> WrongState:
    with pytest.raises(WrongState) as refused:
        await bounded(asked)
    return refused.value


# --- start and stop


@on_reactor
async def test_it_starts_moves_messages_and_stops(place: Place) -> None:
    identified = '<connection-factory ref-name="named"><property name="imqConfiguredClientID" value="me"/></connection-factory>'
    await place.started(
        document(
            link("ab"),
            link("cd", "c", "d", to="named", into='stay-connected="false"'),
            factories=identified,
        )
    )
    assert place.states() == {"ab": LinkState.STARTED, "cd": LinkState.STARTED}
    await place.moved("A", "B")
    await place.moved("C", "D")
    assert [status.factory for status in place.bridge.shared()] == ["named"]
    assert place.bridge.pools() == []
    assert [status.name for status in place.bridge.dmqs()] == ["built-in-dmq"]
    assert place.bridge.config is not None
    await place.bridge.stop()
    assert place.state() is BridgeState.STOPPED
    assert place.bridge.links() == ()
    assert place.bridge.config is None
    await place.unused("me")
    assert place.bridge.problem == ""
    assert [line for line in place.logged if line.startswith(("warn", "error", "critical"))] == []


@on_reactor
async def test_each_start_reads_the_file_and_the_settings_again(place: Place) -> None:
    await place.started(document(link("ab")))
    await place.bridge.stop()
    await place.started(document(link("ac", target="c")))
    await place.moved("A", "C")
    await place.bridge.stop()
    other = place.file.with_name("other.xml")
    place.write(document(link("ad", target="d")))
    place.file.rename(other)
    place.overrides["imq.bridge.orders.xmlurl"] = other.as_uri()
    await place.bridge.start()
    await place.moved("A", "D")


@on_reactor
async def test_what_is_so_already_is_no_failure(place: Place) -> None:
    await place.bridge.stop()
    await place.started(document(link("ab")))
    before = place.link("ab")
    await place.bridge.start()
    await place.bridge.resume()
    assert place.link("ab") is before
    await place.bridge.pause()
    await place.bridge.pause()
    assert place.state() is BridgeState.PAUSED
    await place.bridge.stop()
    await place.bridge.stop()
    assert place.state() is BridgeState.STOPPED


@on_reactor
async def test_what_makes_no_sense_is_refused(place: Place) -> None:
    for asked in (place.bridge.pause, place.bridge.resume, place.bridge.reload):
        error = await wrong(asked())
        assert (error.what, error.state) == ("bridge orders", "STOPPED")


@on_reactor
async def test_all_that_is_wrong_with_the_file_is_the_failure_and_nothing_is_open(
    place: Place,
) -> None:
    place.write(document('<link name="one"/>', link("two", source="nowhere")))
    with pytest.raises(ConfigurationError) as refused:
        await place.bridge.start()
    assert 'link "one"' in str(refused.value)
    assert "nowhere" in str(refused.value)
    assert place.state() is BridgeState.STOPPED
    assert place.bridge.problem == str(refused.value)
    # It is told until it works.
    await place.started(document(link("ab")))
    assert place.bridge.problem == ""


@pytest.mark.parametrize(
    "missing", [["imq.bridge.admin.user"], ["imq.bridge.admin.user", "imq.bridge.admin.password"]]
)
@on_reactor
async def test_without_a_user_of_its_own_it_fails_by_name(place: Place, missing: list[str]) -> None:
    place.write(document(link("ab")))
    for name in missing:
        place.overrides[name] = ""
    with pytest.raises(SettingsError) as refused:
        await place.bridge.start()
    assert [problem.name for problem in refused.value.problems] == missing
    assert "bridge orders" in str(refused.value)
    # Whoever gives them need not start the gateway anew.
    place.overrides |= dict.fromkeys(missing, "guest")
    await place.bridge.start()


@on_reactor
async def test_a_bad_setting_of_its_own_is_the_failure(place: Place) -> None:
    place.write(document(link("ab")))
    place.overrides["imq.bridge.orders.logfile.count"] = "many"
    with pytest.raises(SettingsError) as refused:
        await place.bridge.start()
    assert "imq.bridge.orders.logfile.count=many" in str(refused.value)


@on_reactor
async def test_a_dead_message_queue_that_cannot_be_made_leaves_nothing_open(place: Place) -> None:
    dmq = '<dmq name="d" connection-factory-ref="here" destination-ref="d" message-transformer-class="ext.Missing"/>'
    place.write(document(link("ab"), dmqs=dmq))
    with pytest.raises(NoTransformer, match=r"ext\.Missing"):
        await place.bridge.start()
    assert (place.state(), place.bridge.links()) == (BridgeState.STOPPED, ())


@pytest.mark.parametrize("name", ["java:ext.Any", "ext.Any"])
@on_reactor
async def test_without_a_jms_provider_a_dead_message_queue_has_no_transformer_in_java(
    place: Place, name: str
) -> None:
    dmq = f'<dmq name="d" connection-factory-ref="here" destination-ref="d" message-transformer-class="{name}"/>'
    place.write(document(link("ab"), dmqs=dmq))
    expected = (
        r"ext\.Any.*: a class in Java is run by .* no connection factory of the bridge is one"
    )
    with pytest.raises(NoTransformer, match=expected):
        await place.bridge.start()


@on_reactor
async def test_the_passwords_of_its_file_are_kept_out_of_the_logs(place: Place) -> None:
    factory = '<connection-factory ref-name="named" username="guest" password="hunter2hunter2"/>'
    await place.started(document(link("ab"), factories=factory))
    assert "hunter2" not in place.redaction.text("it is hunter2hunter2 here")


@on_reactor
async def test_a_password_that_is_a_user_s_name_leaves_the_name_readable(place: Place) -> None:
    factories = '<connection-factory ref-name="named" username="rabbit-1" password="rabbit-1"/>'
    factories += '<connection-factory ref-name="other" username="ann" password="wrong"/>'
    await place.started(document(link("ab"), factories=factories))
    text = "user 'guest', user 'rabbit-1': unknown user or wrong passcode"
    assert place.redaction.text(text) == text


# --- links that cannot be started


@on_reactor
async def test_links_that_cannot_be_started_harm_no_other(place: Place) -> None:
    unknown = '<connection-factory ref-name="unknown"><property name="provider" value="kafka"/></connection-factory>'
    await place.started(
        document(
            link("off", more='enabled="false"'),
            link("unmade", into='message-transformer-class="ext.Missing"'),
            link("kafka", of="unknown"),
            link("cd", "c", "d"),
            factories=unknown,
        )
    )
    failed = ["unmade", "kafka"]
    assert place.states() == {
        **dict.fromkeys(failed, LinkState.FAILED),
        "off": LinkState.UNINITIALIZED,
        "cd": LinkState.STARTED,
    }
    for name, text in {"unmade": "ext.Missing", "kafka": "'kafka'"}.items():
        told = place.link(name).status().last_error
        assert told.startswith(f"link {name} ")
        assert text in told
        assert place.logged.count(f"error {told}") == 1
        with pytest.raises(LinkRefused) as refused:
            await place.link(name).start()
        assert str(refused.value) == told
        assert (await wrong(place.link(name).pause())).operation == "pause"
        assert (await wrong(place.link(name).resume())).operation == "resume"
        await place.link(name).stop()
        assert place.link(name).status().state is LinkState.STOPPED
    assert "disabled" in str(await wrong(place.link("off").start()))
    await place.link("off").stop()
    status = place.link("off").status()
    assert (status.state, status.enabled, status.last_error) == (LinkState.UNINITIALIZED, False, "")
    assert place.link("unmade").status().source == "here::queue:A"
    await place.moved("C", "D")


@pytest.mark.process
@on_reactor
async def test_a_bridge_whose_links_cannot_connect_is_started(place: Place) -> None:
    with nobody() as port:
        pass
    await place.started(
        document(link("ab", to="there"), link("cd", "c", "d"), factories=stomp("there", port))
    )
    assert place.states() == {"ab": LinkState.RETRYING, "cd": LinkState.STARTED}
    await place.moved("C", "D")


# --- pause and resume


@pytest.mark.process
@on_reactor
async def test_a_pause_is_over_those_that_run(place: Place) -> None:
    with nobody() as port:
        pass
    await place.started(
        document(
            link("ab"),
            link("off", "c", "d", 'transacted="false" enabled="false"'),
            link("stopped", "c", "d"),
            link("refused", "c", "d", into='message-transformer-class="ext.Missing"'),
            link("lonely", "e", "f", to="there"),
            factories=stomp("there", port),
        )
    )
    await place.link("stopped").stop()
    await place.bridge.pause()
    assert place.state() is BridgeState.PAUSED
    left = {
        "off": LinkState.UNINITIALIZED,
        "stopped": LinkState.STOPPED,
        "refused": LinkState.FAILED,
    }
    assert place.states() == {"ab": LinkState.PAUSED, "lonely": LinkState.PAUSED, **left}
    await place.send("A", "x")
    await place.seam.quiet()
    await place.bridge.resume()
    assert place.state() is BridgeState.STARTED
    assert place.states() == {"ab": LinkState.STARTED, "lonely": LinkState.RETRYING, **left}
    await place.seam.has_left(Queue("B"), ["x"])
    assert [line for line in place.logged if line.startswith(("error", "critical"))] == [
        f"error {place.link('refused').status().last_error}"
    ]


async def pausing(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """A bridge with a link whose batch takes longer than anyone waits for.

    :returns: what ends the batch.
    """
    monkeypatch.setattr(jms_bridge, "STOP_S", 0.05)
    await place.started(document(link("ab"), link("cd", "c", "d")))
    held = place.provider.held = []
    await place.send("A", "x")
    await until(lambda: bool(held))
    place.provider.held = None
    await place.bridge.pause()
    await until(
        lambda: place.states() == {"ab": LinkState.PAUSING, "cd": LinkState.PAUSED}, place.states
    )
    return held


@on_reactor
async def test_it_is_pausing_until_its_last_link_is_paused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await pausing(place, monkeypatch)
    assert place.state() is BridgeState.PAUSING
    await place.bridge.pause()
    assert place.state() is BridgeState.PAUSING
    for complete in held:
        complete()
    await until(lambda: place.state() is BridgeState.PAUSED, place.states)
    assert place.states()["ab"] is LinkState.PAUSED
    assert [line for line in place.logged if "bridge orders is" in line][-2:] == [
        "info bridge orders is PAUSING",
        "info bridge orders is PAUSED",
    ]


@on_reactor
async def test_it_can_be_resumed_and_paused_again_while_it_is_pausing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await pausing(place, monkeypatch)
    await place.bridge.start()
    assert (place.state(), place.states()) == (
        BridgeState.STARTED,
        {"ab": LinkState.STARTED, "cd": LinkState.STARTED},
    )
    await place.bridge.pause()
    assert place.state() is BridgeState.PAUSING
    for complete in held:
        complete()
    await until(lambda: place.state() is BridgeState.PAUSED, place.states)
    await place.bridge.resume()
    await place.moved("C", "D")


@on_reactor
async def test_it_can_be_reloaded_and_stopped_while_it_is_pausing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pausing(place, monkeypatch)
    await place.reloaded(document(link("ab"), link("ef", "e", "f")))
    assert (place.state(), place.states()) == (
        BridgeState.PAUSING,
        {"ab": LinkState.PAUSING, "ef": LinkState.STOPPED},
    )
    await place.bridge.stop(0.5)
    assert place.state() is BridgeState.STOPPED


@on_reactor
async def test_to_start_what_is_paused_resumes_it(place: Place) -> None:
    await place.started(document(link("ab")))
    before = place.link("ab")
    await place.bridge.pause()
    await place.bridge.start()
    assert place.state() is BridgeState.STARTED
    assert place.link("ab") is before
    await place.moved("A", "B")


@on_reactor
async def test_it_can_be_stopped_when_it_is_paused(place: Place) -> None:
    await place.started(document(link("ab")))
    await place.bridge.pause()
    await place.bridge.stop()
    await place.started(document(link("ab")))
    await place.moved("A", "B")


# --- one thing after the other


@pytest.mark.process
@on_reactor
async def test_a_stop_ends_a_start_that_waits_for_a_provider(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stop that waited for the start would not be over in its own time.
    monkeypatch.setattr(jms_bridge, "START_S", 3600.0)
    with nobody() as port:
        place.write(document(link("ab", to="there"), factories=stomp("there", port)))
        starting = place.bridge.start()
        await until(lambda: place.states() == {"ab": LinkState.STARTING}, place.states)
        assert place.state() is BridgeState.STARTING
        await place.bridge.stop()
        assert not [line for line in place.logged if "in time" in line]
        assert place.state() is BridgeState.STOPPED
        assert "it was stopped meanwhile" in str(await wrong(starting))
        assert place.bridge.problem == ""


@pytest.mark.process
@on_reactor
async def test_a_start_does_not_wait_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jms_bridge, "START_S", 0.05)
    with nobody() as port:
        await place.started(
            document(link("ab", to="there"), link("cd", "c", "d"), factories=stomp("there", port))
        )
        assert place.states()["ab"] is LinkState.STARTING
        await place.moved("C", "D")
        await place.bridge.pause()
        assert place.states()["cd"] is LinkState.PAUSED
        await place.bridge.stop()


@on_reactor
async def test_what_is_asked_at_once_is_done_one_after_the_other(place: Place) -> None:
    place.write(document(link("ab")))
    asked = [
        place.bridge.start(),
        place.bridge.pause(),
        place.bridge.resume(),
        place.bridge.start(),
    ]
    for each in asked:
        await bounded(each)
    assert place.state() is BridgeState.STARTED
    stopping, starting, again = place.bridge.stop(), place.bridge.start(), place.bridge.start()
    for each in (stopping, starting, again):
        await bounded(each)
    assert place.state() is BridgeState.STARTED
    await place.moved("A", "B")


@on_reactor
async def test_to_wait_no_longer_for_a_start_does_not_end_it(place: Place) -> None:
    place.write(document(link("ab")))
    asked = place.bridge.start()
    asked.addErrback(lambda _: None)
    asked.cancel()
    await until(lambda: place.state() is BridgeState.STARTED)
    await place.moved("A", "B")


@on_reactor
async def test_a_stop_is_bounded_and_what_is_left_is_told(place: Place) -> None:
    place.provider.closes_never = True
    await place.started(document(link("ab")))
    began = time.monotonic()
    await place.bridge.stop(0.5)
    # Less than a stop that is given no time of its own, on a machine with other work too.
    assert time.monotonic() - began < STOP_S
    assert place.state() is BridgeState.STOPPED
    assert any(
        line.startswith("warn") and "did not stop in time" in line for line in place.logged
    ), place.logged
    place.provider.closes_never = False
    await place.started(document(link("cd", "c", "d")))
    await place.moved("C", "D")


@on_reactor
async def test_it_can_be_stopped_while_the_broker_lets_nobody_in(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jms_bridge, "START_S", 0.05)
    place.provider.connects_never = True
    await place.started(document(link("ab")))
    assert place.states() == {"ab": LinkState.STARTING}
    await bounded(place.bridge.stop(2))
    assert place.state() is BridgeState.STOPPED


# --- reload


@on_reactor
async def test_a_reload_disturbs_only_what_changed(place: Place) -> None:
    await place.started(
        document(link("same"), link("changed", "c", "d"), link("removed", "e", "f"))
    )
    await place.moved("A", "B")
    before = place.link("same"), place.link("changed")
    changes = await place.reloaded(
        document(link("added", "e", "g"), link("changed", "c", "f"), link("same"))
    )
    assert (changes.added, changes.removed, changes.changed) == (
        ("added",),
        ("removed",),
        ("changed",),
    )
    assert list(place.states().items()) == [
        (name, LinkState.STARTED) for name in ("added", "changed", "same")
    ]
    assert place.link("same") is before[0]
    assert place.link("same").status().counters.sent == 1
    assert place.link("changed") is not before[1]
    assert before[1].status().state is LinkState.STOPPED
    await place.moved("A", "B")
    await place.moved("C", "F")
    await place.moved("E", "G")


@on_reactor
async def test_a_file_that_cannot_be_used_changes_nothing(place: Place) -> None:
    await place.started(document(link("ab")))
    before = place.link("ab")
    place.write(document('<link name="one"/>', link("two", source="nowhere")))
    with pytest.raises(ConfigurationError) as refused:
        await place.bridge.reload()
    assert 'link "one"' in str(refused.value)
    assert "nowhere" in str(refused.value)
    dmq = '<dmq name="d" connection-factory-ref="here" destination-ref="d" message-transformer-class="ext.Missing"/>'
    place.write(document(link("cd", "c", "d"), dmqs=dmq))
    with pytest.raises(NoTransformer):
        await place.bridge.reload()
    assert (place.state(), place.bridge.links()) == (BridgeState.STARTED, (before,))
    assert place.bridge.problem == ""
    assert [status.name for status in place.bridge.dmqs()] == ["built-in-dmq"]
    await place.moved("A", "B")


@on_reactor
async def test_attributes_of_the_bridge_reach_links_that_run_on(place: Place) -> None:
    await place.started(document(link("ab"), more='log-message-transfer="false"'))
    await place.moved("A", "B")
    assert not any(line.startswith("info") and "was transferred" in line for line in place.logged)
    before = place.link("ab")
    changes = await place.reloaded(
        document(
            link("ab"), more='log-message-transfer="true" message-transfer-tag-bridge-name="true"'
        )
    )
    assert changes.log_message_transfer
    assert place.link("ab") is before
    await place.send("A", "x")
    client = await place.seam.connect()
    inbox = await client.consumer(Queue("B"))
    await inbox.count(1)
    assert inbox.messages[0].headers.properties["JMS_SUN_JMSBRIDGE_NAME"] == NAME
    await client.close()
    await until(
        lambda: any(line.startswith("info") and "was transferred" in line for line in place.logged)
    )


@on_reactor
async def test_the_dead_message_queues_are_exchanged_under_links_that_run_on(place: Place) -> None:
    place.transformers = {"ext.Failing": Failing}
    failing = (
        'message-transformer-class="ext.Failing" consume-no-transfer-on-transform-error="true"'
    )
    dmq = '<dmq name="{0}" connection-factory-ref="here" destination-ref="{0}"/>'
    await place.started(document(link("ab", into=failing), dmqs=dmq.format("f")))
    before = place.link("ab")
    await place.send("A", "x")
    assert await place.waiting(Queue("F"), 1) == 1
    changes = await place.reloaded(document(link("ab", into=failing), dmqs=dmq.format("g")))
    assert changes.dmqs
    assert [status.name for status in place.bridge.dmqs()] == ["built-in-dmq", "g"]
    assert place.link("ab") is before
    await place.send("A", "y")
    assert await place.waiting(Queue("G"), 1) == 1
    assert await place.waiting(Queue("F"), 0) == 0
    assert await place.waiting(BUILT_IN_DMQ_DESTINATION, 2) == 2


@on_reactor
async def test_connections_of_a_factory_that_changed_are_not_used_any_more(place: Place) -> None:
    identified = '<connection-factory ref-name="named"><property name="imqConfiguredClientID" value="{}"/></connection-factory>'
    shared = link("ab", to="named", into='stay-connected="false"')
    await place.started(document(shared, factories=identified.format("me")))
    await place.moved("A", "B")
    changes = await place.reloaded(document(shared, factories=identified.format("you")))
    assert (changes.changed, changes.connection_factories) == (("ab",), ("named",))
    await place.moved("A", "B")
    await place.unused("me")


@on_reactor
async def test_what_an_operator_stopped_is_not_started_by_a_reload(place: Place) -> None:
    await place.started(document(link("ab"), link("cd", "c", "d")))
    await place.link("ab").stop()
    await place.link("cd").pause()
    await place.reloaded(document(link("ab", target="f"), link("cd", "c", "g")))
    assert place.states() == {"ab": LinkState.STOPPED, "cd": LinkState.STOPPED}
    await place.link("ab").start()
    await place.moved("A", "F")


@on_reactor
async def test_links_of_a_paused_bridge_wait_for_its_resume(place: Place) -> None:
    await place.started(document(link("ab"), link("cd", "c", "d")))
    await place.bridge.pause()
    await place.reloaded(document(link("ab"), link("cd", "c", "f"), link("ae", "e", "g")))
    assert place.state() is BridgeState.PAUSED
    assert place.states() == {
        "ab": LinkState.PAUSED,
        "cd": LinkState.STOPPED,
        "ae": LinkState.STOPPED,
    }
    await place.reloaded(document(link("ab"), link("cd", "c", "g")))
    await place.bridge.resume()
    assert place.states() == {"ab": LinkState.STARTED, "cd": LinkState.STARTED}
    await place.moved("C", "G")


@on_reactor
async def test_a_reload_enables_and_repairs_links(place: Place) -> None:
    failing = 'message-transformer-class="ext.Failing"'
    off = 'transacted="false" enabled="false"'
    await place.started(
        document(
            link("off", more=off),
            link("exactly", "c", "d", ""),
            link("unmade", "e", "f", into=failing),
        )
    )
    # The file says the same of this one, and its class is there now.
    place.transformers = {"ext.Failing": Failing}
    changes = await place.reloaded(
        document(link("off"), link("exactly", "c", "d"), link("unmade", "e", "f", into=failing))
    )
    assert changes.changed == ("off", "exactly")
    assert place.states() == dict.fromkeys(("off", "exactly", "unmade"), LinkState.STARTED)
    await place.reloaded(document(link("off", more=off)))
    assert place.states() == {"off": LinkState.UNINITIALIZED}


#: Of several resource managers, as far as the bridge knows: so each transaction has two phases.
SEVERAL = '<connection-factory ref-name="several" multi-rm="true"/>'


def transacted(size: int) -> str:
    more = f'transacted="true" max-batch-time="20" max-batch-size="{size}"'
    return document(link("one", "a", "b", more, of="several", to="several"), factories=SEVERAL)


@on_reactor
async def test_a_link_that_is_made_anew_does_not_overtake_its_transaction(
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
    await place.started(transacted(5))
    await until(lambda: hanging)
    before = place.link("one")
    await place.reloaded(transacted(7))
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


# --- what its log says of its file


@on_reactor
async def test_the_warnings_of_a_file_that_cannot_be_used_are_logged_as_warnings(
    place: Place,
) -> None:
    place.write(document(link("ab", more='max-batch-time="5" max-retries="many"')))
    with pytest.raises(ConfigurationError) as error:
        await place.bridge.start()
    assert "max-retries" in str(error.value)
    assert "max-batch-time" in str(error.value)
    assert [
        line for line in place.logged if line.startswith("warn") and "max-batch-time" in line
    ] != []


@on_reactor
async def test_a_log_with_a_line_for_each_message_and_no_limit_is_told_of(place: Place) -> None:
    def told() -> bool:
        return any("imq.bridge.orders.logfile.limit" in line for line in place.logged)

    await place.started(document(link("ab")))
    assert told()
    await place.bridge.stop()
    place.logged.clear()
    place.overrides["imq.bridge.orders.logfile.limit"] = "1m"
    await place.started(document(link("ab")))
    assert not told()
