"""What the contract suite needs of a backend: a broker that it may use, and the provider under
test.

A backend that can arrange more than the least overrides what is None or refused here; a test that
needs such a thing is made for the backends that have it, and for no others. What a *provider*
cannot do is no business of this class: that is in its ``capabilities``, and the suite then expects
:class:`~gateway.messaging.errors.NotSupported`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.message import BodyType
from gateway.messaging.provider import Credentials, Provider

_numbers = itertools.count(1)


class Backend(ABC):
    """One broker for all tests of a session.

    Tests keep apart by using fresh destinations.
    """

    #: In the names of the tests.
    name: ClassVar[str]
    #: What the broker calls itself.
    product: ClassVar[str]
    #: Of a user who may do everything that is not :attr:`denied`.
    credentials: Credentials = Credentials("guest", "guest")

    # --- what it may arrange besides

    #: Credentials that are refused.
    wrong: ClassVar[Credentials | None] = None
    #: A queue that this user may neither send to nor consume from.
    denied: ClassVar[Destination | None] = None
    #: A queue that refuses a message above so many.
    full: ClassVar[tuple[Destination, int] | None] = None
    #: A queue that refuses a message of more octets, headers and body.
    small: ClassVar[tuple[Destination, int] | None] = None
    #: A queue that may have so many consumers.
    exclusive: ClassVar[tuple[Destination, int] | None] = None
    #: A queue above whose number of messages senders are held back, until they are settled.
    flow: ClassVar[tuple[Destination, int] | None] = None
    #: The most messages that one transaction may send.
    transaction: ClassVar[int | None] = None
    #: The most deliveries that one transaction may acknowledge.
    acknowledgements: ClassVar[int | None] = None
    #: That a consumer without credit leaves messages to the others of its queue. Most brokers hand
    #: them to a consumer ahead of its credit.
    shares: ClassVar[bool] = False
    #: The queue to which dead messages go.
    dead: ClassVar[Destination | None] = None

    # --- what the broker carries

    #: Body types that come back as they were sent; sending another is refused, with
    #: MessageRejected.
    bodies: ClassVar[frozenset[BodyType]] = frozenset(BodyType)
    #: Whether properties come back with their types; if not, they come back as Strings.
    typed_properties: ClassVar[bool] = True
    #: Whether selectors see properties with their types; if not, as Strings.
    typed_selectors: ClassVar[bool] = True
    #: Whether waiting messages of higher priority are delivered first.
    by_priority: ClassVar[bool] = True
    #: Whether what is received has the message id that its sender saw.
    same_ids: ClassVar[bool] = True
    #: Whether an id and a timestamp that the sender has set are those that are received.
    keeps_ids: ClassVar[bool] = True

    #: The modules of tests that this backend is for; none are all.
    only: ClassVar[tuple[str, ...]] = ()
    #: The mark of its tests, of :data:`tests.tiers.MARKS`; None where it is in this process.
    mark: ClassVar[str | None] = None
    #: Where the provider is known not to keep the contract: names of tests, and why. Such a test
    #: must fail.
    breaches: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    async def start(self, folder: Path) -> None:
        """Have everything run that is needed; called once.

        :param folder: for its files.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End what was started."""

    @abstractmethod
    def provider(self) -> Provider:
        """The provider under test, connected to nothing yet."""

    def queue(self) -> Destination:
        """A queue that no test has used."""
        return Queue(f"contract.q{next(_numbers)}")

    def topic(self) -> Destination:
        """A topic that no test has used."""
        return Topic(f"contract.t{next(_numbers)}")

    # --- what it may do besides

    async def lose(self) -> None:
        """Every connection to the broker is lost, and it can be connected to again when this
        ends.
        """
        raise AssertionError(f"{self.name} cannot lose connections")

    async def restart(self) -> None:
        """The broker stops and starts again; connections are lost, what is durable is there
        again.
        """
        raise AssertionError(f"{self.name} cannot restart its broker")

    async def remove(self, destination: Destination) -> None:
        """An administrator removes a destination, with what is in it."""
        raise AssertionError(f"{self.name} cannot remove a destination")

    def unreachable(self) -> Provider:
        """A provider of a broker that does not run."""
        raise AssertionError(f"{self.name} always runs")


def arranges(backend: type[Backend], what: str) -> bool:
    """Whether this backend has its own of what is nothing in :class:`Backend`."""
    return any(what in vars(base) for base in backend.__mro__ if base not in (Backend, ABC, object))
