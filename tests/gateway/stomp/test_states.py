"""The table of states, and that sessions obey it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stomp.session.states import COMMANDS, EVENTS, TRANSITIONS, Command, State, illegal
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message

FRAMES = {
    Command.CONNECT: "CONNECT\nlogin:a\npasscode:b\naccept-version:1.2\n\n",
    Command.STOMP: "STOMP\nlogin:a\npasscode:b\naccept-version:1.2\n\n",
    Command.SEND: "SEND\ndestination:/queue/a\n\nx",
    Command.SUBSCRIBE: "SUBSCRIBE\nid:new\ndestination:/queue/a\n\n",
    Command.UNSUBSCRIBE: "UNSUBSCRIBE\nid:old\n\n",
    Command.ACK: "ACK\nid:1-1\n\n",
    Command.NACK: "NACK\nid:1-1\n\n",
    Command.BEGIN: "BEGIN\ntransaction:t\n\n",
    Command.COMMIT: "COMMIT\ntransaction:t\n\n",
    Command.ABORT: "ABORT\ntransaction:t\n\n",
    Command.DISCONNECT: "DISCONNECT\n\n",
}


def in_state(state: State) -> Client:
    """A client whose session is in that state, with a subscription "old" and a delivery 1-1 where
    it is connected.
    """
    server = Server()
    if state is State.OPENED:
        return server.client()
    if state is State.CONNECTING:
        server.provider.undecided = []
        client = server.client()
        client.say(FRAMES[Command.CONNECT])
        return client
    client = server.connected()
    client.say("SUBSCRIBE\nid:old\ndestination:/queue/a\nack:client\n\n")
    client.consumer().push(message())
    client.read()
    if state is State.IN_TRANSACTION:
        client.say(FRAMES[Command.BEGIN])
    elif state is State.DISCONNECTING:
        server.provider.holds_completions = True
        client.say(FRAMES[Command.DISCONNECT])
    elif state is State.CLOSED:
        client.say(FRAMES[Command.CONNECT])
        client.drain()
    client.heard()
    assert client.connection.session.state is state
    return client


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("state", State)
def test_each_command_in_each_state_is_legal_or_ends_the_connection(
    state: State, command: Command
) -> None:
    client = in_state(state)
    client.say(FRAMES[command])
    session = client.connection.session
    following = TRANSITIONS[state].get(command)
    if state in (State.CONNECTING, State.DISCONNECTING, State.CLOSED):
        # Nothing is read: what a client sends before its answer waits, what it sends after its end
        # is dropped.
        assert session.state is state
        assert client.commands() == []
    elif following is None:
        assert client.error().head.headers["message"]
        assert session.state is State.CLOSED
    elif following is State.CONNECTING:
        assert session.state is State.CONNECTED
        assert client.commands() == ["CONNECTED"]
    elif following is State.DISCONNECTING:
        assert client.commands() == []
        assert session.state is State.CLOSED
        assert client.transport.is_closed
    else:
        assert session.state is following
        assert client.commands() == []


def test_the_table_names_every_state_and_every_target_is_one() -> None:
    assert set(TRANSITIONS) == set(State)
    for followings in TRANSITIONS.values():
        assert set(followings) <= set(Command)
    for before, after in EVENTS.values():
        assert before <= set(State)
        assert after in State


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", Command)
def test_what_is_illegal_has_a_sentence_that_names_the_command(
    state: State, command: Command
) -> None:
    assert command.value in illegal(state, command)


@given(st.lists(st.sampled_from([*Command]), max_size=12))
def test_any_run_of_commands_leaves_a_state_of_the_table_and_nothing_after_an_error(
    commands: list[Command],
) -> None:
    server = Server()
    client = server.client()
    expected = State.OPENED
    for command in commands:
        if expected is State.CLOSED:
            before = len(server.provider.log)
            client.say(FRAMES[command])
            assert len(server.provider.log) == before
            continue
        client.say(FRAMES[command])
        client.drain()
        session = client.connection.session
        following = TRANSITIONS[expected].get(command)
        if following is State.CONNECTING:
            following = State.CONNECTED
        if following is None or following is State.DISCONNECTING or session.state is State.CLOSED:
            following = State.CLOSED
        assert session.state is following
        expected = following
    heard = client.commands()
    assert heard.count("ERROR") <= 1
    if "ERROR" in heard:
        assert (heard[-1], client.transport.is_closed) == ("ERROR", True)


@pytest.mark.parametrize("name", ["MESSAGE", "CONNECTED", "RECEIPT", "ERROR", "SENDX", "send", ""])
def test_other_names_are_no_commands(name: str) -> None:
    assert name not in COMMANDS


@pytest.mark.parametrize("name", ["MESSAGE", "RECEIPT", "NOSUCH"])
def test_what_clients_do_not_send_is_an_error(name: str, client: Client) -> None:
    assert name in client.refusal(f"{name}\na:b\n\n")
