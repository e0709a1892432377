"""Why a link moves nothing, and which links a destination waits for.

Plain functions of what links say of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.link.status import BridgeState, Doing, LinkState, LinkStatus
from gateway.admin.service.bridge_resources import ElsewhereOwned
from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    listing,
    moment,
    quoted,
    some,
    span,
    spoken,
    why_destination,
)
from gateway.admin.why.facts import Facts, LinkFacts
from gateway.messaging.destination import Destination

#: The kind of cause of each state in which a link moves nothing.
_STATES = {
    LinkState.UNINITIALIZED: CauseKind.LINK_DISABLED,
    LinkState.STOPPED: CauseKind.LINK_STOPPED,
    LinkState.STOPPING: CauseKind.LINK_STOPPED,
    LinkState.FAILED: CauseKind.LINK_FAILED,
    LinkState.STARTING: CauseKind.LINK_WAITING,
    LinkState.RETRYING: CauseKind.LINK_WAITING,
    LinkState.PAUSED: CauseKind.LINK_PAUSED,
    LinkState.PAUSING: CauseKind.LINK_PAUSED,
}


def _named(status: LinkStatus) -> str:
    return f"link {quoted(status.name)} of bridge {quoted(status.bridge)}"


def _failure(status: LinkStatus) -> str:
    """Return its last failure for the end of a sentence: without a full stop."""
    return status.last_error.removesuffix(".")


def _order(status: LinkStatus, operation: str) -> str:
    return command("imqbridgemgr", operation, "link", "-bn", status.bridge, "-ln", status.name)


def _waits(status: LinkStatus) -> str:
    if status.waiting < 0:
        return ""
    return f"; {counted(status.waiting)} {some(status.waiting, 'waits', 'wait')} at its source"


def _next_try(status: LinkStatus, now_ms: int) -> str:
    wait_ms = status.next_try_ms - now_ms
    return f"tries again in {span(wait_ms)}" if wait_ms > 0 else "tries again now"


def bridge_cause(link: LinkFacts) -> Cause | None:
    """Return that the bridge of a link is paused, and the link with it."""
    status = link.status
    if link.bridge not in (BridgeState.PAUSED, BridgeState.PAUSING):
        return None
    return Cause(
        CauseKind.BRIDGE_PAUSED,
        f"Bridge {quoted(status.bridge)} is {link.bridge.value}, and {_named(status)} with it{_waits(status)}.",
        {"state": link.bridge.value, "waiting": status.waiting},
        "Resume the bridge; no link of it can be started or resumed before:",
        command("imqbridgemgr", "resume", "bridge", "-bn", status.bridge),
        status.since_ms,
        max(0, status.waiting),
    )


def stopped_cause(bridge: str, state: str, problem: str, what: str = "its links") -> Cause:
    """Return that a bridge is stopped.

    :param problem: why its last start failed, "" if it did not.
    :param what: what does not run therefore.
    """
    failed = f": {problem}" if problem else ""
    return Cause(
        CauseKind.BRIDGE_STOPPED,
        f"Bridge {quoted(bridge)} is {state}, and {what} with it{failed}.",
        {"state": state},
        "Start it:",
        command("imqbridgemgr", "start", "bridge", "-bn", bridge),
    )


def elsewhere_cause(owned: ElsewhereOwned) -> Cause:
    """Return that another broker of the cluster runs a bridge."""
    problem = f": {owned.problem}" if owned.problem else ""
    state = f" ({owned.state})" if owned.state else ""
    return Cause(
        CauseKind.OWNED_ELSEWHERE,
        f"Broker {quoted(owned.broker)} of the cluster owns bridge {quoted(owned.name)}{state}, and this one does not run it{problem}.",
        {"broker": owned.broker, "state": owned.state},
        "Ask that broker, with -b and its address; which broker owns which bridge, is listed by:",
        command("imqbridgemgr", "list", "bridge"),
    )


def state_cause(link: LinkFacts, now_ms: int) -> Cause | None:
    """Return what the state of a link or bridge stops; None for none."""
    status = link.status
    kind = _STATES.get(status.state)
    if kind is None:
        return None
    if kind is CauseKind.LINK_PAUSED and (paused := bridge_cause(link)) is not None:
        return paused
    name, state = _named(status), status.state.value
    error = f": {_failure(status)}" if status.last_error else ""
    waits = _waits(status)
    figures: dict[str, int | float | str] = {
        "state": state,
        "waiting": status.waiting,
        "attempt": status.attempt,
    }
    since = f"since {moment(status.since_ms)}"
    advice, remedy = "Start it:", _order(status, "start")
    sentence = f"{name} is {state} {since}{waits}"
    if status.state is LinkState.UNINITIALIZED:
        sentence = f"{name} is disabled in the file of its bridge{waits}"
        advice = 'Set enabled="true" for it in the file of the bridge, and have that read again:'
        remedy = command("imqbridgemgr", "reload", "bridge", "-bn", status.bridge)
    elif status.state is LinkState.FAILED:
        sentence = f"{name} has given up {since}{error}{waits}"
        advice = "Mend that, and start it again:"
    elif kind is CauseKind.LINK_WAITING:
        next_try = f", and {_next_try(status, now_ms)}" if status.next_try_ms else ""
        attempts = f" after {counted(status.attempt, 'attempt')}" if status.attempt else ""
        sentence = f"{name} is not connected {since}{attempts}{next_try}{error}{waits}"
        advice = "Bring the broker at the other end back, or correct its connection factory; see how it goes:"
        remedy = command("imqbridgemgr", "query", "link", "-bn", status.bridge, "-ln", status.name)
    elif kind is CauseKind.LINK_PAUSED:
        advice, remedy = "Resume it:", _order(status, "resume")
    return Cause(
        kind,
        f"{sentence[0].upper()}{sentence[1:]}.",
        figures,
        advice,
        remedy,
        status.since_ms,
        max(0, status.waiting),
    )


_WAITS_FOR = {
    Doing.SENDING: "its target to take what it sends",
    Doing.ACKNOWLEDGING: "its source to confirm an acknowledgement",
    Doing.BURYING: "a dead message queue to take a message",
    Doing.RECEIVING: "its source to deliver",
    Doing.TRANSFORMING: "its transformer",
    Doing.PACING: "its rate",
    Doing.NOTHING: "nothing that it knows of",
}


def link_causes(link: LinkFacts, now_ms: int) -> Iterator[Cause]:
    """Yield why a link moves nothing, or what does not add up."""
    status = link.status
    by_state = state_cause(link, now_ms)
    if by_state is not None:
        yield by_state
        paused = bridge_cause(link)
        if paused is not None and paused != by_state:
            yield paused
    elif status.state is LinkState.STALLED:
        yield stall_cause(status, now_ms)
    elif (unanswered := answer_cause(status, now_ms)) is not None:
        yield unanswered
    elif status.paced:
        yield pace_cause(status)
    name = _named(status)
    counters = status.counters
    if status.transaction and status.transaction_state in ("WAITING", "IN_DOUBT", "HEURISTIC"):
        yield Cause(
            CauseKind.PREPARED_TRANSACTION,
            f"Transaction {status.transaction} of {name} is {status.transaction_state}.",
            {"transaction": status.transaction, "state": status.transaction_state},
            "See its branches, and end it by hand only where a broker will never come back:",
            command("imqbridgemgr", "list", "transactions", "-bn", status.bridge, "-debug"),
        )
    yield from _balance_causes(status, name)
    dead = sum(counters.dead.values())
    if dead:
        reasons = ", ".join(f"{reason.value} {count}" for reason, count in counters.dead.items())
        yield Cause(
            CauseKind.DEAD,
            f"{counted(dead)} of {name} went to the dead message queues ({reasons}).",
            {"dead": dead},
            "See them and why; 'replay dead' sends them again:",
            command(
                "imqbridgemgr",
                "list",
                "dead",
                "-selector",
                "JMS_SUN_JMSBRIDGE_DMQ_REASON IS NOT NULL",
            ),
            0,
            dead,
        )
    if by_state is not None:
        return
    if status.last_error and status.last_error_ms >= status.since_ms:
        yield Cause(
            CauseKind.REFUSED,
            f"The last failure of {name} was at {moment(status.last_error_ms)}: {_failure(status)}.",
            {},
            "See its state and counters:",
            command("imqbridgemgr", "query", "link", "-bn", status.bridge, "-ln", status.name),
            status.last_error_ms,
        )
    if not status.waiting:
        yield Cause(
            CauseKind.NOTHING_WAITS,
            f"{name[0].upper()}{name[1:]} is STARTED and nothing waits at its source; {_last_moved(status)}.",
            {"moved": counters.sent, "out": status.balance.out},
            "If messages should come, ask about the source:",
            command("imqcmd", "list", "dst")
            if link.source is None
            else why_destination(link.source),
        )


def _last_moved(status: LinkStatus) -> str:
    if status.last_transfer_ms:
        return f"the last message was moved at {moment(status.last_transfer_ms)}"
    out = status.balance.out
    if not out:
        return "it has never moved one"
    loaded = f" at {moment(status.loaded_ms)}" if status.loaded_ms else ""
    return f"it has moved none since the gateway loaded it{loaded}, and {out} before"


def _balance_causes(status: LinkStatus, name: str) -> Iterator[Cause]:
    terms, difference = status.balance, status.difference
    query = command("imqbridgemgr", "query", "link", "-bn", status.bridge, "-ln", status.name)
    if difference:
        lost = f", {terms.lost} of them lost as AT_MOST_ONCE allows" if terms.lost else ""
        yield Cause(
            CauseKind.UNBALANCED,
            f"The balance of {name} has a difference of {difference}{lost}: {terms.taken} were taken, and {terms.out} are out, {terms.dead} dead, {terms.not_transferred} not transferred, {terms.in_doubt} in doubt and {terms.held} held.",
            {"difference": difference, "lost": terms.lost, "taken": terms.taken},
            "The bridge's log says which messages were lost and why; see the balance:",
            query,
            0,
            abs(difference),
        )
    if terms.in_doubt:
        yield Cause(
            CauseKind.PREPARED_TRANSACTION,
            f"{counted(terms.in_doubt)} of {name} {some(terms.in_doubt, 'is', 'are')} in doubt: {some(terms.in_doubt, 'its source was asked to forget it', 'their source was asked to forget them')}, and whether it has is known when both brokers are there and the link runs.",
            {"in_doubt": terms.in_doubt},
            "Bring the broker back that is away; see the transactions:",
            command("imqbridgemgr", "list", "transactions", "-bn", status.bridge, "-debug"),
            0,
            terms.in_doubt,
        )
    if terms.possibly_twice:
        yield Cause(
            CauseKind.POSSIBLY_TWICE,
            f"{counted(terms.possibly_twice)} of {name} may be at the target twice: {some(terms.possibly_twice, 'it was', 'they were')} sent, and the source gave {some(terms.possibly_twice, 'it', 'them')} out again.",
            {"possibly_twice": terms.possibly_twice},
            'Where that matters, give the link quality-of-service="ONCE_AND_ONLY_ONCE"; see the link:',
            query,
            0,
            terms.possibly_twice,
        )


def stall_cause(status: LinkStatus, now_ms: int) -> Cause:
    """Return why a link is stalled, connected or not."""
    count = max(status.waiting, status.in_flight)
    waits = f"{counted(count)} {some(count, 'waits', 'wait')}"
    last = _last_moved(status)
    error = f"; its last failure: {_failure(status)}" if status.last_error else ""
    name = _named(status)
    figures: dict[str, int | float | str] = {
        "waiting": status.waiting,
        "in_flight": status.in_flight,
        "connected": int(status.connected),
        "doing": status.doing.value,
        "doing_since_ms": status.doing_since_ms,
    }
    if status.connected:
        sentence = f"{name} is connected and stalled: {waits}, {last}, and it waits for {_WAITS_FOR[status.doing]} since {moment(status.doing_since_ms)}{error}."
        advice = "Make room at that broker, or restart it if it hangs; the link goes on by itself. To connect anew:"
        remedy = _order(status, "stop")
    else:
        sentence = f"{name} is stalled, and has lost its connection again: {waits}, {last}, and it {_next_try(status, now_ms)}{error}."
        advice = "Make room at that broker, or restart it if it hangs; the link goes on by itself. See how it goes:"
        remedy = command("imqbridgemgr", "query", "link", "-bn", status.bridge, "-ln", status.name)
    return Cause(
        CauseKind.LINK_STALLED,
        f"{sentence[0].upper()}{sentence[1:]}",
        figures,
        advice,
        remedy,
        status.since_ms,
        max(0, status.waiting),
    )


#: Milliseconds without an answer that are worth a word.
_SLOW_MS = 1000
_ASKING = (Doing.SENDING, Doing.ACKNOWLEDGING, Doing.BURYING, Doing.TRANSFORMING)


def answer_cause(status: LinkStatus, now_ms: int) -> Cause | None:
    """Return that a batch has had no answer for a while, or None."""
    since_ms = max(status.doing_since_ms, status.last_transfer_ms)
    if (
        status.state is not LinkState.STARTED
        or status.doing not in _ASKING
        or not status.in_flight
        or now_ms - since_ms < _SLOW_MS
    ):
        return None
    name = _named(status)
    return Cause(
        CauseKind.NO_ANSWER,
        f"{name[0].upper()}{name[1:]} has {counted(status.in_flight)} on {some(status.in_flight, 'its', 'their')} way, and has waited for {_WAITS_FOR[status.doing]}, without an answer, for {span(now_ms - since_ms)}.",
        {
            "in_flight": status.in_flight,
            "doing": status.doing.value,
            "silent_ms": now_ms - since_ms,
        },
        f"Look at that broker: it may be full, or hang. After imq.bridge.{status.bridge}.stalled seconds the link is STALLED; see how it goes:",
        command("imqbridgemgr", "query", "link", "-bn", status.bridge, "-ln", status.name),
        since_ms,
        status.in_flight,
    )


def pace_cause(status: LinkStatus) -> Cause:
    """Return that a link waits for its rates."""
    name, rate = _named(status), status.max_rate
    rates = {"max-messages-per-second": rate, "max-bytes-per-second": status.max_bytes_rate}
    given = {attribute: most for attribute, most in rates.items() if most}
    held = " and its ".join(f"{attribute} of {most}" for attribute, most in given.items())
    waits = (
        f"; {counted(status.waiting)} {some(status.waiting, 'waits', 'wait')} at its source"
        if status.waiting > 0
        else ""
    )
    until = (
        f", which takes {span(status.waiting * 1000 // rate)} at this rate"
        if status.waiting > 0 and rate and not status.max_bytes_rate
        else ""
    )
    return Cause(
        CauseKind.LINK_PACED,
        f"{name[0].upper()}{name[1:]} is held back by its {held}, and moved {status.sent_rate:.1f} a second over the last minute{waits}{until}.",
        {
            **{attribute.replace("-", "_"): most for attribute, most in given.items()},
            "waiting": status.waiting,
            "waited_s": round(status.paced_s, 3),
        },
        f"Where that is too slow, raise {' or '.join(given)} of the link in the file of its bridge, or leave it out, and have that read again:",
        command("imqbridgemgr", "reload", "bridge", "-bn", status.bridge),
        0,
        max(0, status.waiting),
    )


def takes_from(facts: Facts, destination: Destination) -> Iterator[tuple[str, str]]:
    """Yield bridge and name of the links whose source is this destination."""
    for link in facts.links:
        if link.source == destination:
            yield link.status.bridge, link.status.name


def link_causes_of(facts: Facts, destination: Destination) -> Iterator[Cause]:
    """Yield the links that would serve a destination, and do not."""
    takers: dict[str, list[str]] = {}
    bringers: dict[str, list[str]] = {}
    for stopped in facts.stopped_links:
        if destination in (stopped.source, stopped.target):
            names = takers if stopped.source == destination else bringers
            names.setdefault(stopped.bridge, []).append(quoted(stopped.name))
    for bridge in dict.fromkeys((*takers, *bringers)):
        roles = [
            f"its {some(len(names), 'link', 'links')} {listing(names)}, which {some(len(names), one, several)} {spoken(destination)},"
            for names, one, several in (
                (takers.get(bridge, []), "takes messages from", "take messages from"),
                (bringers.get(bridge, []), "brings messages to", "bring messages to"),
            )
            if names
        ]
        yield stopped_cause(bridge, BridgeState.STOPPED.value, "", " and ".join(roles))
    for link in facts.links:
        if destination not in (link.source, link.target):
            continue
        cause = state_cause(link, facts.now_ms)
        if link.status.state is LinkState.STALLED:
            cause = stall_cause(link.status, facts.now_ms)
        elif (unanswered := answer_cause(link.status, facts.now_ms)) is not None:
            cause = unanswered
        elif link.source == destination and link.status.paced:
            cause = pace_cause(link.status)
        if cause is None:
            continue
        what = "takes messages from" if link.source == destination else "brings messages to"
        other = link.status.target if link.source == destination else link.status.source
        sentence = f"{cause.sentence.rstrip('.')}; it {what} {spoken(destination)} ({other})."
        yield Cause(
            cause.kind,
            sentence,
            cause.figures,
            cause.advice,
            cause.command,
            cause.since_ms,
            cause.weight,
        )


def unknown_links(facts: Facts) -> list[str]:
    """Return what is not known of bridges that do not run here."""
    known = {each.bridge for each in facts.stopped_links}
    texts = [
        f"Bridge {quoted(name)} is STOPPED, and its file is read when it starts: whether a link of it takes part is not known ({command('imqbridgemgr', 'start', 'bridge', '-bn', name)})."
        for name in facts.stopped
        if name not in known
    ]
    texts += [
        f"Broker {quoted(owned.broker)} of the cluster owns bridge {quoted(owned.name)}: whether a link of it takes part is known there."
        for owned in facts.elsewhere
    ]
    return texts
