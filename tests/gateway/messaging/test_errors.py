"""Errors carry what was wrong as values and say it in a sentence."""

from __future__ import annotations

import inspect

import pytest

from gateway.messaging import errors
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError

CASES: list[tuple[MessagingError, str, dict[str, object]]] = [
    (
        errors.AuthenticationFailed("ann"),
        "user 'ann' is refused: unknown user or wrong passcode",
        {"username": "ann"},
    ),
    (
        errors.CredentialsEnded("ann"),
        "the token of user 'ann' has ended",
        {"username": "ann"},
    ),
    (
        errors.AccessDenied("ann", "produce", Queue("q")),
        "user 'ann' may not produce on queue:q",
        {"operation": "produce", "destination": Queue("q")},
    ),
    (
        errors.InvalidDestination("/x", "no such prefix"),
        "/x: no such prefix",
        {"destination": "/x", "reason": "no such prefix"},
    ),
    (
        errors.UnknownExchange(Queue("q"), "no exchange 'x' in vhost '/'"),
        "queue:q: no exchange 'x' in vhost '/'",
        {"sentence": "no exchange 'x' in vhost '/'"},
    ),
    (
        errors.DestinationFull(Queue("q"), "maxNumMsgs", 5),
        "queue:q is full: maxNumMsgs is 5",
        {"limit": "maxNumMsgs", "value": 5},
    ),
    (
        errors.ProducersPaused(Queue("q")),
        "queue:q is paused for producers by an administrator",
        {"destination": Queue("q")},
    ),
    (
        errors.InvalidSchedule("AMQ_SCHEDULED_DELAY", "soon", "a whole number is expected"),
        "AMQ_SCHEDULED_DELAY 'soon' is invalid: a whole number is expected",
        {"name": "AMQ_SCHEDULED_DELAY", "value": "soon", "reason": "a whole number is expected"},
    ),
    (
        errors.ConnectionEnded(),
        "an administrator has ended the connection",
        {"reason": "an administrator has ended the connection"},
    ),
    (
        errors.DestinationStopped(Queue("q")),
        "queue:q is stopped: its messages in the store are damaged. The gateway's log says where",
        {"destination": Queue("q")},
    ),
    (
        errors.MessageTooLarge(Queue("q"), 9, "maxBytesPerMsg", 5),
        "a message of 9 octets is too large for queue:q: maxBytesPerMsg is 5",
        {"size": 9, "value": 5},
    ),
    (
        errors.MessageRejected(3, errors.InvalidDestination("/x", "no such prefix")),
        "/x: no such prefix",
        {"index": 3},
    ),
    (
        errors.InvalidSelector("a =", 4, "the selector ends"),
        "selector 'a =' is invalid at column 4: the selector ends",
        {"selector": "a =", "column": 4, "reason": "the selector ends"},
    ),
    (
        errors.InvalidSelector("x" * 4000 + " = = " + "y" * 4000, 4004, "'=' stands here"),
        f"selector '...{'x' * 47} = = {'y' * 48}...' is invalid at column 4004: '=' stands here",
        {"column": 4004},
    ),
    (
        errors.InvalidSelector("= " + "y" * 4000, 1, "'=' stands here"),
        f"selector '= {'y' * 98}...' is invalid at column 1: '=' stands here",
        {"column": 1},
    ),
    (
        errors.InvalidSelector("x" * 4000 + " =", 4003, "the selector ends"),
        f"selector '...{'x' * 98} =' is invalid at column 4003: the selector ends",
        {"column": 4003},
    ),
    (
        errors.InvalidSelector("x" * 9000, 0, "it is long"),
        f"selector '{'x' * 100}...' is invalid: it is long",
        {"column": 0},
    ),
    (
        errors.InvalidSelector("", 0, "it is blank"),
        "selector '' is invalid: it is blank",
        {"column": 0},
    ),
    (
        errors.SelectorTooCostly("a LIKE '%b_c%'", 80, "imq.selectors.maxCost", 50, "ask for less"),
        "selector \"a LIKE '%b_c%'\" is refused: the cost is 80, and imq.selectors.maxCost is 50; ask for less",
        {"cost": 80, "limit": "imq.selectors.maxCost", "value": 50, "column": 0},
    ),
    (
        errors.MessageUnreadable(Queue("q"), "m", "it is cut short"),
        "message 'm' of queue:q cannot be read, and is left there: it is cut short. Take it off with the tools of the broker",
        {"message_id": "m", "reason": "it is cut short", "withheld": ""},
    ),
    (
        errors.MessageUnreadable(Queue("q"), "", "a.BException: cut short", "cut short"),
        "a message of queue:q cannot be read, and is left there: a.BException: cut short. Take it off with the tools of the broker",
        {"reason": "a.BException: cut short", "withheld": "a.BException: cut short"},
    ),
    (
        errors.InvalidDuplicateId("it is empty"),
        "the duplicate id is invalid: it is empty",
        {"reason": "it is empty"},
    ),
    (
        errors.DuplicateInDoubt(),
        "another message with the same duplicate id is in a transaction that is prepared, and whose outcome is not known yet",
        {},
    ),
    (
        errors.ClientIdInUse("c"),
        "client-id 'c' is in use by another connection",
        {"client_id": "c"},
    ),
    (
        errors.ClientIdRequired("d"),
        "durable subscription 'd' needs a client-id on CONNECT, and this connection has none",
        {"durable_name": "d"},
    ),
    (
        errors.DurableInUse("c", "d"),
        "durable subscription 'd' of client-id 'c' has an active consumer",
        {"client_id": "c"},
    ),
    (
        errors.UnknownSubscription("c", "d"),
        "client-id 'c' has no durable subscription 'd'",
        {"durable_name": "d"},
    ),
    (errors.UnknownDelivery(7), "delivery 7 is not outstanding", {"number": 7}),
    (
        errors.TooManyConsumers(Queue("q"), -1),
        "queue:q has all the consumers it may have",
        {"value": -1},
    ),
    (
        errors.TooManyConsumers(Queue("q"), 1),
        "queue:q has all the consumers it may have: maxNumActiveConsumers is 1",
        {"value": 1},
    ),
    (
        errors.NoRoom(Queue("q"), "consumer", 9, 5),
        "no room for a consumer of queue:q: destinations, subscriptions and consumers take 9 bytes of memory, and clients may make more "
        "up to 5, half of imq.memory.waiting; use fewer of them, or have the operator raise imq.memory.budget",
        {"what": "consumer", "used": 9, "most": 5},
    ),
    (
        errors.TransactionTooLarge("octets", 5),
        "the transaction is too large: octets is 5",
        {"limit": "octets", "value": 5},
    ),
    (
        errors.StorageFailed("no space"),
        "the message store could not write: no space",
        {"reason": "no space", "withheld": "no space"},
    ),
    (
        errors.StorageFailed("x: full", "full"),
        "the message store could not write: x: full",
        {"withheld": "x: full"},
    ),
    (
        errors.StorageFailed("full", "full"),
        "the message store could not write: full",
        {"withheld": ""},
    ),
    (
        errors.SubscriptionDiffers("s", Queue("q"), "without a selector"),
        "subscription 's' is shared, and is to queue:q without a selector",
        {"name": "s"},
    ),
    (
        errors.ClosedOverRefusal("it sent ERROR: no"),
        "the provider is unavailable: it sent ERROR: no",
        {"reason": "it sent ERROR: no"},
    ),
    (
        errors.ProviderUnavailable("closed"),
        "the provider is unavailable: closed",
        {"reason": "closed"},
    ),
    (
        errors.OutcomeUnknown("lost"),
        "the outcome of the commit is unknown: lost",
        {"reason": "lost"},
    ),
    (errors.NotSupported("xa"), "the provider does not support xa", {"capability": "xa"}),
    (
        errors.XAError(-4, "no such branch"),
        "XA error -4: no such branch",
        {"code": -4, "reason": "no such branch"},
    ),
]


@pytest.mark.parametrize(
    ("error", "sentence", "attributes"), CASES, ids=lambda case: type(case).__name__
)
def test_an_error_says_what_is_wrong_and_carries_it(
    error: MessagingError, sentence: str, attributes: dict[str, object]
) -> None:
    assert str(error) == sentence
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert isinstance(error, MessagingError)


def test_a_rejection_carries_its_cause() -> None:
    cause = errors.DestinationFull(Queue("q"), "maxNumMsgs", 5)
    assert errors.MessageRejected(0, cause).cause is cause


def test_every_error_is_in_the_list() -> None:
    named = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, MessagingError)
        and value not in (MessagingError, errors.DestinationError)
    }
    assert named == {type(error).__name__ for error, _, _ in CASES}


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(error, sentence) for error, sentence, _ in CASES if not error.withheld],
    ids=lambda case: type(case).__name__,
)
def test_destinations_are_told_as_the_reader_spells_them(
    error: MessagingError, sentence: str
) -> None:
    assert error.told(lambda destination: f"/queue/{destination.name}") == sentence.replace(
        "queue:q", "/queue/q"
    )
    assert error.told(str) == sentence


def test_a_rejected_message_is_told_as_its_cause() -> None:
    rejected = errors.MessageRejected(3, errors.DestinationFull(Queue("q"), "maxNumMsgs", 5))
    assert rejected.told(lambda destination: "/queue/q") == "/queue/q is full: maxNumMsgs is 5"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.StorageFailed("/var/messages.db: bad"), "the message store could not write"),
        (
            errors.StorageFailed("/var/messages.db: full", "full"),
            "the message store could not write: full",
        ),
        (
            errors.MessageRejected(1, errors.StorageFailed("/var/messages.db: bad")),
            "the message store could not write",
        ),
    ],
)
def test_what_names_files_is_for_the_log_and_not_for_clients(
    error: MessagingError, told: str
) -> None:
    assert error.told(str) == told
    assert error.withheld.startswith("/var/messages.db")
