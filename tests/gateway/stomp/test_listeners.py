"""Listeners: their settings, and how they come and go."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from gateway.instance.settings import SettingsError, read
from gateway.stomp.listeners import Listener, read_listeners
from gateway.stomp.open_listeners import ListenerFailed, UnknownListener
from gateway.stomp.service import ServiceState
from gateway.stomp.settings import SETTINGS, StompOptions
from gateway.stomp.websocket.upgrade import Rules
from tests.gateway.stomp.test_service import Bridge, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

_PREFIX = "imq.bridge.stomp.listener"


def _options(*lines: str) -> StompOptions:
    return StompOptions.read(read(SETTINGS, None, [f"{_PREFIX}.{line}" for line in lines])[0], "1")


def test_a_listener_has_what_its_settings_say() -> None:
    options = _options(
        "web.port=7674",
        "web.ws=true",
        "web.path=/broker/stomp",
        "web.origins=https://shop.example.org, http://localhost:3000",
        "web.webSocketMaxFramePayloadLength=64k",
        "web.proxies=10.0.0.5, 10.1.0.0/16",
        "second.port=7682",
        "second.address=::1",
        "second.tls=true",
        "tcp.proxies=10.0.0.5",
    )
    tcp, web, second = options.listeners
    assert (web.name, web.port, web.address, web.tls) == ("web", 7674, "", False)
    assert web.websocket == Rules(
        "/broker/stomp",
        frozenset({"https://shop.example.org", "http://localhost:3000"}),
        64 * 1024,
    )
    assert "10.1.2.3" in web.proxies
    assert (second.port, second.address, second.tls, second.websocket) == (7682, "::1", True, None)
    assert not second.proxies
    assert "10.0.0.5" in tcp.proxies
    assert not second.client_auth
    # Read again, they are the same.
    assert _options("tcp.proxies=::1,10.0.0.5") == _options("tcp.proxies=10.0.0.5, ::1")


def test_prefixes_are_of_artemis_only() -> None:
    options = _options(
        "tcp.profile=artemis",
        "tcp.anycastPrefix=jms.queue., jms.",
        "tcp.multicastPrefix=jms.topic.",
        "tls.profile=artemis",
    )
    assert options.tcp_profile.prefixes == (
        ("jms.queue.", "ANYCAST"),
        ("jms.topic.", "MULTICAST"),
        ("jms.", "ANYCAST"),
    )
    assert options.tls_profile.prefixes == ()
    for profile in ("openmq", "activemq"):
        with pytest.raises(SettingsError, match=r"listener\.a\.profile=artemis, too"):
            _options("a.port=1", f"a.profile={profile}", "a.multicastPrefix=topic/")


def test_whether_clients_must_show_a_certificate_is_asked_of_each_listener() -> None:
    lines = [
        "a.port=1",
        "a.tls=true",
        "b.port=2",
        "b.tls=true",
        "b.requireClientAuth=false",
        "c.port=3",
        "c.tls=true",
        "c.requireClientAuth=true",
        "d.port=4",
    ]

    def asked(of_the_bridge: str) -> list[bool]:
        given = [f"{_PREFIX}.{line}" for line in lines]
        given += [
            "imq.bridge.stomp.tls.enabled=true",
            f"imq.bridge.stomp.tls.requireClientAuth={of_the_bridge}",
        ]
        options = StompOptions.read(read(SETTINGS, None, given)[0], "1")
        return [listener.client_auth for listener in options.listeners]

    # tcp, tls, a, b, c, d: what does not say so is as the bridge's port for TLS.
    assert asked("true") == [False, True, True, False, True, False]
    assert asked("false") == [False, False, False, False, True, False]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tcp.port=1234", "imq.bridge.stomp.tcp.*"),
        ("tls.ws=true", "imq.bridge.stomp.tls.*"),
        ("web.ws=true", "imq.bridge.stomp.listener.web.port, too"),
        ("web.requireClientAuth=true", "imq.bridge.stomp.listener.web.tls=true, too"),
        ("a.b.port=1234", "letters, digits"),
        ("web.path=stomp", "a path such as /stomp"),
        ("web.path=/st omp", "a path such as /stomp"),
        ("web.origins=shop.example.org", "origins such as https://shop.example.org"),
        ("web.origins=https://shop.example.org/", "origins such as https://shop.example.org"),
        ("web.origins=https://Shop.example.org", "origins such as https://shop.example.org"),
        ("web.origins=https://shop.example.org:443", "origins such as https://shop.example.org"),
        ("web.origins=https://you@shop.example.org", "origins such as https://shop.example.org"),
        ("web.origins=https://b\u00fccher.example", "origins such as https://shop.example.org"),
        ("web.origins=https://shop.example.org:99999", "origins such as https://shop.example.org"),
        ("web.proxies=10.0.0.1/8", "addresses or networks such as 10.0.0.0/24"),
        ("web.proxies=proxy.example.org", "addresses or networks such as 10.0.0.0/24"),
    ],
)
def test_a_listener_that_cannot_be_is_refused_by_the_setting_that_is_wrong(
    line: str, told: str
) -> None:
    port = ["web.port=7674", "web.ws=true"] if line.startswith(("web.p", "web.o", "web.r")) else []
    settings, _ = read(SETTINGS, None, [f"{_PREFIX}.{one}" for one in (*port, line)])
    with pytest.raises(SettingsError) as raised:
        read_listeners(settings, "")
    [problem] = raised.value.problems
    assert problem.name.removeprefix(f"{_PREFIX}.") == line.partition("=")[0]
    assert told in str(problem)


@on_reactor
async def test_listeners_come_and_go_and_clients_stay() -> None:
    bridge = Bridge(others=(Listener("one", 0, "127.0.0.1"),))
    service = bridge.service
    await service.start()
    client = await bridge.connected()
    tcp, one = bridge.options.listeners
    kept = service.ports["tcp"]
    two = Listener("two", 0, "127.0.0.1")
    await service.listeners.change((tcp, two))
    assert [*service.ports] == ["tcp", "two"]
    assert service.ports["tcp"] == kept
    assert "stomp-one[bridge] stomp[TCP] stomp[bridge]" not in bridge.registered
    port = service.ports["two"]
    assert bridge.registered["stomp-two[bridge] stomp[TCP] stomp[bridge]"] == port
    socket.create_connection(("127.0.0.1", port)).close()
    # One that is changed is another one.
    moved = Listener("two", 0, "127.0.0.1", websocket=Rules())
    await service.listeners.change((moved,))
    assert [*service.ports] == ["two"]
    client.say(b"SEND\ndestination:/queue/a\nreceipt:still\n\nx\0")
    await client.heard(1)
    await service.listeners.change((tcp, one))
    assert {*service.ports} == {"tcp", "one"}
    await service.stop()
    assert not bridge.registered


@on_reactor
async def test_one_whose_port_is_taken_leaves_the_others() -> None:
    bridge = Bridge()
    service = bridge.service
    await service.start()
    [tcp] = bridge.options.listeners
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad = Listener("bad", taken.getsockname()[1], "127.0.0.1")
        await service.listeners.change((tcp, bad, Listener("good", 0, "127.0.0.1")))
    assert [*service.ports] == ["tcp", "good"]
    # At the next change it is tried again.
    await service.listeners.change((tcp, bad))
    assert [*service.ports] == ["tcp", "bad"]
    await service.stop()


@on_reactor
async def test_one_that_cannot_be_opened_keeps_nothing_from_going_on() -> None:
    bridge = Bridge()
    service = bridge.service
    await service.start()
    [tcp] = bridge.options.listeners
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad = Listener("bad", taken.getsockname()[1], "127.0.0.1")
        await service.listeners.change((tcp, bad, Listener("secure", 0, "127.0.0.1", tls=True)))
        await service.pause()
        await service.resume()
        assert [*service.ports] == ["tcp"]
        taken_one, secure = service.listeners.views()[1:]
        assert (taken_one.state, secure.state) == ("STOPPED", "STOPPED")
        assert "Address already in use" in taken_one.problem
        assert "no certificates" in secure.problem
        with pytest.raises(ListenerFailed, match="stomp-bad cannot be opened"):
            await service.listeners.resume("stomp-bad")
        await service.listeners.change((tcp, bad))
    await service.stop()
    await service.start()
    assert [*service.ports] == ["tcp", "bad"]
    await service.stop()


@on_reactor
async def test_one_that_an_operator_pauses_stays_closed_until_it_is_resumed() -> None:
    bridge = Bridge(others=(Listener("one", 0, "127.0.0.1"),))
    service, listeners = bridge.service, bridge.service.listeners
    await service.start()
    port = service.ports["one"]
    await listeners.pause("stomp-one")
    assert [(each.service, each.state) for each in listeners.views()] == [
        ("stomp", "RUNNING"),
        ("stomp-one", "PAUSED"),
    ]
    assert "stomp-one[bridge] stomp[TCP] stomp[bridge]" not in bridge.registered
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    # Neither a reload that changes nothing nor a bridge that pauses and goes on opens it.
    await listeners.change(bridge.options.listeners)
    await service.pause()
    await service.resume()
    assert listeners.views()[1].state == "PAUSED"
    # Resumed while the bridge is paused it is open and announced when that goes on.
    await service.pause()
    await listeners.resume("stomp-one")
    await service.resume()
    socket.create_connection(("127.0.0.1", port)).close()
    assert bridge.registered["stomp-one[bridge] stomp[TCP] stomp[bridge]"] == port
    # Other settings do not open one that is paused.
    await listeners.pause("stomp-one")
    [tcp, one] = bridge.options.listeners
    await listeners.change((tcp, replace(one, websocket=Rules())))
    assert listeners.views()[1].state == "PAUSED"
    await listeners.change((tcp, one))
    await listeners.resume("stomp-one")
    port = service.ports["one"]
    assert bridge.registered["stomp-one[bridge] stomp[TCP] stomp[bridge]"] == port
    # While the bridge is stopped it cannot be opened, and is with the next start.
    await listeners.pause("stomp-one")
    await service.stop()
    await listeners.resume("stomp-one")
    assert {each.state for each in listeners.views()} == {"STOPPED"}
    await service.start()
    assert {each.state for each in listeners.views()} == {"RUNNING"}
    with pytest.raises(UnknownListener, match="there is no service stomp-two"):
        await listeners.pause("stomp-two")
    await service.stop()


@on_reactor
async def test_a_paused_bridge_listens_where_it_should_when_it_goes_on() -> None:
    bridge = Bridge()
    service = bridge.service
    await service.start()
    await service.pause()
    await service.listeners.change((Listener("other", 0, "127.0.0.1"),))
    assert not service.ports
    await service.resume()
    await until(lambda: service.state is ServiceState.STARTED)
    assert [*service.ports] == ["other"]
    assert [*bridge.registered] == ["stomp-other[bridge] stomp[TCP] stomp[bridge]"]
    await service.stop()
