"""The states of a link and their transitions: one table, top to bottom.

Owns which event leads where, and the timer of the next attempt, which belongs to the state that
waits for it. What is done on the way is
:class:`Work`'s. An event that is not in a state's list cannot happen there, or
:class:`bridge.jms_link.JMSLink` refuses it before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from automat import TypeMachineBuilder
from twisted.internet.interfaces import IDelayedCall

from bridge.link.status import LinkState


class Events(Protocol):
    """What happens to a link; the first four because an operator asks."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...

    def connected(self) -> None:
        """Both ends are connected."""

    def retry(self, wait_s: float) -> None:
        """Something failed that may work after ``wait_s`` seconds."""

    def give_up(self) -> None:
        """Something failed that will not work, or that was tried often enough."""

    def due(self) -> None:
        """It is time for the next attempt."""

    def halted(self) -> None:
        """The pump has finished a batch, and was not to begin another."""

    def closed(self) -> None:
        """Both ends are closed."""


class Work(Protocol):
    """What a link does between states. None of it calls an event meanwhile."""

    def enter(self, state: LinkState) -> None:
        """Show this state."""

    def connect(self) -> None:
        """Connect what is not connected; ends with connected, retry or give_up."""

    def pump(self) -> None:
        """Move messages; ends with halted, retry or give_up."""

    def halt(self) -> None:
        """Have the pump finish its batch and begin no other."""

    def close(self) -> None:
        """Close both ends, bounded in time; ends with closed."""

    def later(self, seconds: float, call: Callable[[], None]) -> IDelayedCall:
        """Call after that many seconds."""


# The core is whatever does the work; mypy wants a class that can be made.
_builder: Final = TypeMachineBuilder(Events, Work)  # type: ignore[type-abstract]


def _wait(events: Events, work: Work, wait_s: float) -> IDelayedCall:
    return work.later(wait_s, events.due)


_stopped = _builder.state("stopped")
_connecting = _builder.state("connecting")
_started = _builder.state("started")
_waiting = _builder.state("waiting", _wait)
_pausing = _builder.state("pausing")
_paused = _builder.state("paused")
_stopping = _builder.state("stopping")
_giving_up = _builder.state("giving up")
_failed = _builder.state("failed")


# --- stopped, failed


@_stopped.upon(Events.start).to(_connecting)
@_failed.upon(Events.start).to(_connecting)
@_paused.upon(Events.resume).to(_connecting)
def _start(_events: Events, work: Work) -> None:
    work.enter(LinkState.STARTING)
    work.connect()


@_failed.upon(Events.stop).to(_stopped)
@_stopping.upon(Events.closed).to(_stopped)
def _show_stopped(_events: Events, work: Work) -> None:
    work.enter(LinkState.STOPPED)


# --- connecting


@_connecting.upon(Events.connected).to(_started)
def _run(_events: Events, work: Work) -> None:
    work.enter(LinkState.STARTED)
    work.pump()


@_connecting.upon(Events.retry).to(_waiting)
@_started.upon(Events.retry).to(_waiting)
def _wait_to_retry(_events: Events, work: Work, wait_s: float) -> None:
    work.enter(LinkState.RETRYING)


@_connecting.upon(Events.pause).to(_paused)
@_pausing.upon(Events.halted).to(_paused)
def _show_paused(_events: Events, work: Work) -> None:
    # An attempt to connect goes on, and what it brings is kept.
    work.enter(LinkState.PAUSED)


# --- waiting for the next attempt


@_waiting.upon(Events.due).to(_connecting)
def _retry(_events: Events, work: Work, _call: IDelayedCall) -> None:
    work.connect()


@_waiting.upon(Events.pause).to(_paused)
def _pause_waiting(_events: Events, work: Work, call: IDelayedCall) -> None:
    call.cancel()
    work.enter(LinkState.PAUSED)


@_waiting.upon(Events.stop).to(_stopping)
def _stop_waiting(_events: Events, work: Work, call: IDelayedCall) -> None:
    call.cancel()
    work.enter(LinkState.STOPPING)
    work.close()


# --- started


@_started.upon(Events.halted).loop()
def _go_on(_events: Events, work: Work) -> None:
    # It was paused and resumed before the batch was finished.
    work.pump()


@_started.upon(Events.pause).to(_pausing)
def _pause(_events: Events, work: Work) -> None:
    work.enter(LinkState.PAUSING)
    work.halt()


# --- pausing, paused


@_pausing.upon(Events.retry).to(_paused)
def _paused_by_failure(_events: Events, work: Work, wait_s: float) -> None:
    # What was lost is connected again when it is resumed.
    work.enter(LinkState.PAUSED)


@_pausing.upon(Events.resume).to(_started)
def _resume_pausing(_events: Events, work: Work) -> None:
    work.enter(LinkState.STARTED)


_paused.upon(Events.connected).loop().returns(None)


@_paused.upon(Events.retry).loop()
def _attempt_failed_while_paused(_events: Events, work: Work, wait_s: float) -> None:
    """The failure is on record already."""


_paused.upon(Events.give_up).loop().returns(None)


# --- the end


@_connecting.upon(Events.stop).to(_stopping)
@_started.upon(Events.stop).to(_stopping)
@_pausing.upon(Events.stop).to(_stopping)
@_paused.upon(Events.stop).to(_stopping)
@_connecting.upon(Events.give_up).to(_giving_up)
@_started.upon(Events.give_up).to(_giving_up)
@_pausing.upon(Events.give_up).to(_giving_up)
def _close(_events: Events, work: Work) -> None:
    work.enter(LinkState.STOPPING)
    work.close()


# It closes already, and then need not show that it has failed.
_giving_up.upon(Events.stop).to(_stopping).returns(None)
_stopping.upon(Events.stop).loop().returns(None)


@_giving_up.upon(Events.closed).to(_failed)
def _failed_now(_events: Events, work: Work) -> None:
    work.enter(LinkState.FAILED)


#: What its pump or an attempt has to say while a link closes is of no interest any more.
for _ending in (_stopping, _giving_up):
    _ending.upon(Events.connected).loop().returns(None)
    _ending.upon(Events.retry).loop().returns(None)
    _ending.upon(Events.give_up).loop().returns(None)
    _ending.upon(Events.halted).loop().returns(None)

#: Makes the machine of one link.
machine: Final[Callable[[Work], Events]] = _builder.build()
