"""The broker's settings: its store, limits and destinations.

Declared here once; the reference page is made from it. The names are the original's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.names import check_name, is_wild
from gateway.instance.setting_types import ValueType
from gateway.instance.settings import (
    Boolean,
    Choice,
    Decimal,
    Duration,
    Integer,
    Octets,
    Setting,
    Settings,
    Text,
    Words,
)
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.redelivery import RedeliveryPolicy

_BEHAVIORS: Final = tuple(behavior.value for behavior in LimitBehavior)
_DEFAULTS: Final = RedeliveryPolicy()

#: Characters of the name of a property.
_LONGEST_KEY: Final = 255
_A_NAME: Final = f"the name of a property or header, without spaces and colons, of {_LONGEST_KEY} characters at most"


def _queue(text: str) -> str:
    try:
        check_name(Queue(f"{text}x" if text.endswith(".") else text or "x"))
    except InvalidDestination as error:
        raise ValueError(error.reason) from None
    return text


#: The name of a queue, or what it begins with; empty for none.
_QUEUE: Final = ValueType(
    "queue", "the name of a queue, or what the names of several begin with and a dot", _queue
)

#: The name of an address; empty for none.
_ADDRESS: Final = ValueType(
    "address", "the name of an address, as of a queue", lambda text: text and _queue(text)
)


def _key(text: str) -> str:
    if len(text) > _LONGEST_KEY or any(not mark.isprintable() or mark in " :" for mark in text):
        raise ValueError(_A_NAME)
    return text


#: The name of a property or header; empty for none.
_KEY: Final = ValueType("name", _A_NAME, _key)

PERSIST_STORE: Final = Setting(
    "imq.persist.store",
    Choice("sqlite", "memory", "jdbc", "file"),
    "sqlite",
    "Where messages are kept: sqlite (file means the same); jdbc, a PostgreSQL database that processes on several machines can share; "
    "or memory, which forgets them with the process.",
)
MAX_SIZE: Final = Setting(
    "imq.message.max_size", Octets(), 70 * 1024 * 1024, "Largest message, headers and body"
)
EXPIRATION_INTERVAL: Final = Setting(
    "imq.message.expiration.interval",
    Duration("seconds"),
    60,
    "Time between sweeps for expired messages",
)
MAX_ROLLBACKS: Final = Setting(
    "imq.transaction.message.maxConsecutiveRollbacks",
    Integer(0),
    0,
    "Rollbacks, aborts and lost connections after which a message is dead; 0 is no limit",
)
MOVES_GROUPS: Final = Setting(
    "imq.messageGroups.rebalance",
    Boolean(),
    True,
    "Whether a consumer that comes later gets its part of the message groups that others have, once they have settled what they have of them",
)
TRANSACTION_MESSAGES: Final = Setting(
    "imq.transaction.producer.maxNumMsgs",
    Integer(1),
    10_000,
    "Messages that one transaction may send",
    unit="messages",
)
TRANSACTION_OCTETS: Final = Setting(
    "imq.transaction.producer.maxTotalMsgBytes",
    Octets(),
    256 * 1024 * 1024,
    "Octets that one transaction may send",
)
TRANSACTION_ACKNOWLEDGEMENTS: Final = Setting(
    "imq.transaction.consumer.maxNumMsgs",
    Integer(1),
    100_000,
    "Messages that one transaction may acknowledge",
    unit="messages",
)
XA_TIMEOUT: Final = Setting(
    "imq.transaction.xa.timeout",
    Duration("seconds"),
    300,
    "Time after which a branch of an XA transaction that has work and is not prepared is rolled back; 0 is no limit",
)
LOGINS_WAITING: Final = Setting(
    "imq.authentication.waiting",
    Integer(1),
    1000,
    "Logins that may wait for their passcodes to be verified. For one more, one is refused of the address that has most of them waiting.",
    unit="logins",
)
LOGIN_DELAY: Final = Setting(
    "imq.authentication.failureDelay",
    Duration("milliseconds", 0, 60_000),
    5000,
    "Longest time for which the answer to a login that failed is held back. Five failures of an address are answered at once, "
    "then each is held back for twice as long as the one before, from 250 ms on; a minute without a failure forgets them. 0 holds back none.",
)
LOG_DEAD: Final = Setting(
    "imq.destination.logDeadMsgs", Boolean(), False, "Log each message that dies"
)
TRUNCATE_DEAD: Final = Setting(
    "imq.destination.DMQ.truncateBody",
    Boolean(),
    False,
    "Keep only the headers of dead messages, not their bodies",
)
AUTOCREATE_QUEUE: Final = Setting(
    "imq.autocreate.queue", Boolean(), True, "Create a queue when it is first used"
)
AUTOCREATE_TOPIC: Final = Setting(
    "imq.autocreate.topic", Boolean(), True, "Create a topic when it is first used"
)
REAP_TIME: Final = Setting(
    "imq.autocreate.reaptime",
    Duration("seconds"),
    120,
    "Time after which an unused auto-created destination is removed",
)
VIRTUAL_TOPICS: Final = Setting(
    "imq.virtualTopics.names",
    Words(),
    ("VirtualTopic.>",),
    "Virtual topics: names, with or without wildcards, several with commas between. What is sent to one also goes to each queue that has imq.virtualTopics.prefix "
    "before the name of the topic. Empty: no topic is virtual",
)
VIRTUAL_PREFIX: Final = Setting(
    "imq.virtualTopics.prefix",
    Text(),
    "Consumer.*.",
    "What the names of these queues have before the name of the topic: levels with a dot behind each, of which * is any one",
)
AUTO_MAX_MESSAGES: Final = Setting(
    "imq.autocreate.destination.maxNumMsgs",
    Integer(-1),
    -1,
    "maxNumMsgs of auto-created destinations",
    unit="messages",
)
AUTO_MAX_OCTETS: Final = Setting(
    "imq.autocreate.destination.maxTotalMsgBytes",
    Octets(),
    10 * 1024**3,
    "maxTotalMsgBytes of auto-created destinations",
)
AUTO_MAX_MESSAGE_OCTETS: Final = Setting(
    "imq.autocreate.destination.maxBytesPerMsg",
    Octets(),
    -1,
    "maxBytesPerMsg of auto-created destinations",
)
AUTO_LIMIT_BEHAVIOR: Final = Setting(
    "imq.autocreate.destination.limitBehavior",
    Choice(*_BEHAVIORS),
    LimitBehavior.REJECT_NEWEST.value,
    "limitBehavior of auto-created destinations",
)
AUTO_USE_DMQ: Final = Setting(
    "imq.autocreate.destination.useDMQ", Boolean(), True, "useDMQ of auto-created destinations"
)
AUTO_QUEUE_DEAD: Final = Setting(
    "imq.autocreate.queue.deadLetterQueue",
    _QUEUE,
    "",
    "deadLetterQueue of auto-created queues, as ActiveMQ.DLQ.Queue.",
)
AUTO_TOPIC_DEAD: Final = Setting(
    "imq.autocreate.topic.deadLetterQueue",
    _QUEUE,
    "",
    "deadLetterQueue of auto-created topics, as ActiveMQ.DLQ.Topic.",
)
AUTO_MAX_CONSUMERS: Final = Setting(
    "imq.autocreate.queue.maxNumActiveConsumers",
    Integer(-1),
    -1,
    "maxNumActiveConsumers of auto-created queues",
    unit="consumers",
)

SELECTOR_COST: Final = Setting(
    "imq.selectors.maxCost",
    Integer(-1),
    10_000,
    "What the selector of one subscription may cost, about in microseconds for a message whose properties are 10 KiB long and as bad for it as can be: "
    "a comparison of Strings costs 2, one of numbers 9 and more, LIKE 11 and more, and with _ between other characters 60 and 6 for each "
    "character of the pattern; -1 is no limit",
)
SELECTORS_COST: Final = Setting(
    "imq.selectors.maxCostPerConnection",
    Integer(-1),
    200_000,
    "What the selectors of all subscriptions of one connection may cost together; -1 is no limit",
)

DUPLICATE_COUNT: Final = Setting(
    "imq.duplicateIds.maxCount",
    Integer(1),
    20_000,
    "Duplicate ids that each destination remembers. Ids with a / are counted apart, by what is before it.",
    unit="ids",
)
DUPLICATE_TOTAL: Final = Setting(
    "imq.duplicateIds.maxTotalCount",
    Integer(1),
    1_000_000,
    "Duplicate ids that are remembered in all",
    unit="ids",
)
DUPLICATE_OCTETS: Final = Setting(
    "imq.duplicateIds.maxTotalBytes",
    Octets(unlimited=False, minimum=1024),
    256 * 1024 * 1024,
    "About how much memory duplicate ids may take in all; the oldest are forgotten",
)
DUPLICATE_AGE: Final = Setting(
    "imq.duplicateIds.maxAge",
    Duration("seconds", 1),
    86_400,
    "Time for which a duplicate id is remembered",
)

MAX_MESSAGES: Final = Setting(
    "imq.destination.NAME.maxNumMsgs",
    Integer(-1),
    -1,
    "Messages not yet acknowledged that the destination may hold. NAME is queue.Q or topic.T. Giving any of a destination's settings "
    "defines it: it may then be used also where none is created automatically, and is not removed when unused.",
    unit="messages",
)
MAX_OCTETS: Final = Setting(
    "imq.destination.NAME.maxTotalMsgBytes",
    Octets(),
    -1,
    "Octets of messages that the destination may hold",
)
MAX_MESSAGE_OCTETS: Final = Setting(
    "imq.destination.NAME.maxBytesPerMsg", Octets(), -1, "Largest message for the destination"
)
LIMIT_BEHAVIOR: Final = Setting(
    "imq.destination.NAME.limitBehavior",
    Choice(*_BEHAVIORS),
    LimitBehavior.REJECT_NEWEST.value,
    "What happens at maxNumMsgs or maxTotalMsgBytes",
)
USE_DMQ: Final = Setting(
    "imq.destination.NAME.useDMQ",
    Boolean(),
    True,
    "Whether dead messages go to mq.sys.dmq, or deadLetterQueue",
)
DEAD_LETTER_QUEUE: Final = Setting(
    "imq.destination.NAME.deadLetterQueue",
    _QUEUE,
    "",
    "The queue that dead messages go to in place of mq.sys.dmq; to a name that ends with a dot, as ActiveMQ.DLQ.Queue., the destination's is added",
)
IS_DMQ: Final = Setting(
    "imq.destination.NAME.isDMQ",
    Boolean(),
    False,
    "Whether a queue is a dead message queue, in which nothing dies a second time: such a message is gone. A queue that gets its first dead message "
    "and was made by use, or is made for it, becomes one",
)
ADDRESS: Final = Setting(
    "imq.destination.NAME.address",
    _ADDRESS,
    "",
    "The address of a queue: what is sent to the queue of that name comes to one of the queues that have it, which take turns",
)
LAST_VALUE_KEY: Final = Setting(
    "imq.destination.NAME.lastValueKey",
    _KEY,
    "",
    "The property by whose value messages of a queue have keys: of those that wait only the newest of each key is kept. Messages without it are all kept",
)
MAX_CONSUMERS: Final = Setting(
    "imq.destination.NAME.maxNumActiveConsumers",
    Integer(-1),
    -1,
    "Consumers a queue may have at one time",
    unit="consumers",
)
REDELIVERIES: Final = Setting(
    "imq.destination.NAME.maximumRedeliveries",
    Integer(-1),
    _DEFAULTS.maximum_redeliveries,
    "Deliveries of a rejected message after the first, before it is dead; -1 is no limit",
    unit="deliveries",
)
INITIAL_DELAY: Final = Setting(
    "imq.destination.NAME.initialRedeliveryDelay",
    Duration("milliseconds"),
    _DEFAULTS.initial_redelivery_delay,
    "Time before the first redelivery",
)
DELAY: Final = Setting(
    "imq.destination.NAME.redeliveryDelay",
    Duration("milliseconds"),
    _DEFAULTS.redelivery_delay,
    "Time before later redeliveries, where it does not grow",
)
BACK_OFF: Final = Setting(
    "imq.destination.NAME.useExponentialBackOff",
    Boolean(),
    _DEFAULTS.use_exponential_back_off,
    "Whether each pause before a redelivery is longer than the one before",
)
BACK_OFF_MULTIPLIER: Final = Setting(
    "imq.destination.NAME.backOffMultiplier",
    Decimal(1.0),
    _DEFAULTS.back_off_multiplier,
    "How many times longer",
)
MAXIMUM_DELAY: Final = Setting(
    "imq.destination.NAME.maximumRedeliveryDelay",
    Integer(-1),
    _DEFAULTS.maximum_redelivery_delay,
    "Longest pause before a redelivery, and longest rest of one after a restart; -1 is no bound",
    unit="milliseconds",
)

#: By the attribute of ``DestinationProperties``, and of ``RedeliveryPolicy``.
PROPERTY_SETTINGS: Final[dict[str, Setting[Any]]] = {
    "max_num_msgs": MAX_MESSAGES,
    "max_total_msg_bytes": MAX_OCTETS,
    "max_bytes_per_msg": MAX_MESSAGE_OCTETS,
    "limit_behavior": LIMIT_BEHAVIOR,
    "use_dmq": USE_DMQ,
    "dead_letter_queue": DEAD_LETTER_QUEUE,
    "is_dmq": IS_DMQ,
    "address": ADDRESS,
    "last_value_key": LAST_VALUE_KEY,
    "max_num_active_consumers": MAX_CONSUMERS,
}
POLICY_SETTINGS: Final[dict[str, Setting[Any]]] = {
    "maximum_redeliveries": REDELIVERIES,
    "initial_redelivery_delay": INITIAL_DELAY,
    "redelivery_delay": DELAY,
    "use_exponential_back_off": BACK_OFF,
    "back_off_multiplier": BACK_OFF_MULTIPLIER,
    "maximum_redelivery_delay": MAXIMUM_DELAY,
}

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    PERSIST_STORE,
    MAX_SIZE,
    EXPIRATION_INTERVAL,
    MAX_ROLLBACKS,
    MOVES_GROUPS,
    TRANSACTION_MESSAGES,
    TRANSACTION_OCTETS,
    TRANSACTION_ACKNOWLEDGEMENTS,
    XA_TIMEOUT,
    LOGINS_WAITING,
    LOGIN_DELAY,
    LOG_DEAD,
    TRUNCATE_DEAD,
    AUTOCREATE_QUEUE,
    AUTOCREATE_TOPIC,
    REAP_TIME,
    VIRTUAL_TOPICS,
    VIRTUAL_PREFIX,
    AUTO_MAX_MESSAGES,
    AUTO_MAX_OCTETS,
    AUTO_MAX_MESSAGE_OCTETS,
    AUTO_LIMIT_BEHAVIOR,
    AUTO_USE_DMQ,
    AUTO_QUEUE_DEAD,
    AUTO_TOPIC_DEAD,
    AUTO_MAX_CONSUMERS,
    SELECTOR_COST,
    SELECTORS_COST,
    DUPLICATE_COUNT,
    DUPLICATE_TOTAL,
    DUPLICATE_OCTETS,
    DUPLICATE_AGE,
    *PROPERTY_SETTINGS.values(),
    *POLICY_SETTINGS.values(),
)

#: Properties of ``mq.sys.dmq`` where nothing else is set.
DMQ_PROPERTIES: Final = DestinationProperties(
    max_total_msg_bytes=1024**3, limit_behavior=LimitBehavior.REMOVE_OLDEST, use_dmq=False
)
#: Those of other dead message queues, made when they get their first message.
DEAD_QUEUE_PROPERTIES: Final = replace(DMQ_PROPERTIES, is_dmq=True)
_AUTO_PROPERTIES: Final = DestinationProperties(max_total_msg_bytes=10 * 1024**3)


@dataclass(frozen=True)
class BrokerOptions:
    """What the broker is told by its settings.

    :param name: of the instance, in dead messages.
    :param destinations: properties that were set for one, by kind and name.
    :param auto_queue: properties of auto-created queues, None where none are created;
        ``auto_topic`` likewise.
    :param expiration_interval: seconds.
    :param reap_time: seconds.
    :param virtual_topics: see :class:`gateway.broker.core.virtual_topics.VirtualTopics`;
        ``virtual_prefix`` likewise.
    :param xa_timeout: seconds, 0 for none.
    :param duplicate_age: seconds.
    """

    name: str = "imqbroker"
    max_size: int = 70 * 1024 * 1024
    expiration_interval: int = 60
    most_rollbacks: int = 0
    moves_groups: bool = MOVES_GROUPS.default
    transaction_messages: int = 10_000
    transaction_octets: int = 256 * 1024 * 1024
    transaction_acknowledgements: int = 100_000
    xa_timeout: int = 300
    log_dead: bool = False
    truncate_dead: bool = False
    auto_queue: DestinationProperties | None = _AUTO_PROPERTIES
    auto_topic: DestinationProperties | None = _AUTO_PROPERTIES
    reap_time: int = 120
    virtual_topics: tuple[str, ...] = VIRTUAL_TOPICS.default
    virtual_prefix: str = VIRTUAL_PREFIX.default
    selector_cost: int = SELECTOR_COST.default
    selectors_cost: int = SELECTORS_COST.default
    duplicate_count: int = 20_000
    duplicate_total: int = 1_000_000
    duplicate_octets: int = 256 * 1024 * 1024
    duplicate_age: int = 86_400
    destinations: tuple[tuple[Destination, DestinationProperties], ...] = ()


def broker_options(settings: Settings, name: str) -> BrokerOptions:
    """The options that the settings of instance ``name`` ask for.

    :raises ValueError: a destination is named that is neither ``queue.NAME`` nor ``topic.NAME``, or
        is a pattern; or virtual topics have a prefix that cannot be one.
    """
    auto = DestinationProperties(
        max_num_msgs=settings[AUTO_MAX_MESSAGES],
        max_total_msg_bytes=settings[AUTO_MAX_OCTETS],
        max_bytes_per_msg=settings[AUTO_MAX_MESSAGE_OCTETS],
        limit_behavior=LimitBehavior(settings[AUTO_LIMIT_BEHAVIOR]),
        use_dmq=settings[AUTO_USE_DMQ],
    )
    auto_queue = replace(
        auto,
        max_num_active_consumers=settings[AUTO_MAX_CONSUMERS],
        dead_letter_queue=settings[AUTO_QUEUE_DEAD],
    )
    auto = replace(auto, dead_letter_queue=settings[AUTO_TOPIC_DEAD])
    named = {
        name
        for setting in (*PROPERTY_SETTINGS.values(), *POLICY_SETTINGS.values())
        for name in settings.names(setting)
    }
    return BrokerOptions(
        name=name,
        max_size=settings[MAX_SIZE],
        expiration_interval=settings[EXPIRATION_INTERVAL],
        most_rollbacks=settings[MAX_ROLLBACKS],
        moves_groups=settings[MOVES_GROUPS],
        transaction_messages=settings[TRANSACTION_MESSAGES],
        transaction_octets=settings[TRANSACTION_OCTETS],
        transaction_acknowledgements=settings[TRANSACTION_ACKNOWLEDGEMENTS],
        xa_timeout=settings[XA_TIMEOUT],
        log_dead=settings[LOG_DEAD],
        truncate_dead=settings[TRUNCATE_DEAD],
        auto_queue=auto_queue if settings[AUTOCREATE_QUEUE] else None,
        auto_topic=auto if settings[AUTOCREATE_TOPIC] else None,
        reap_time=settings[REAP_TIME],
        virtual_topics=settings[VIRTUAL_TOPICS],
        virtual_prefix=_prefix(settings[VIRTUAL_PREFIX]),
        selector_cost=settings[SELECTOR_COST],
        selectors_cost=settings[SELECTORS_COST],
        duplicate_count=settings[DUPLICATE_COUNT],
        duplicate_total=settings[DUPLICATE_TOTAL],
        duplicate_octets=settings[DUPLICATE_OCTETS],
        duplicate_age=settings[DUPLICATE_AGE],
        destinations=tuple(
            (_destination(name), _properties(settings, name, _destination(name), auto_queue, auto))
            for name in sorted(named)
        ),
    )


def _prefix(text: str) -> str:
    *levels, last = text.split(".")
    if last or not levels or not all(levels) or ">" in levels:
        raise ValueError(
            f"{VIRTUAL_PREFIX.name}={text}: expected levels with a dot behind each, such as Consumer.*."
        )
    return text


def _destination(name: str) -> Destination:
    kind, separator, rest = name.partition(".")
    if not separator or not rest or kind not in ("queue", "topic"):
        raise ValueError(
            f"imq.destination.{name}: expected imq.destination.queue.NAME or imq.destination.topic.NAME"
        )
    if is_wild(rest):
        raise ValueError(
            f"imq.destination.{name}: expected the name of one {kind}; wildcards are for subscriptions of topics"
        )
    destination = Destination(Kind.QUEUE if kind == "queue" else Kind.TOPIC, rest)
    try:
        check_name(destination)
    except InvalidDestination as error:
        raise ValueError(f"imq.destination.{name}: {error.reason}") from None
    return destination


def _properties(
    settings: Settings,
    name: str,
    destination: Destination,
    auto_queue: DestinationProperties,
    auto_topic: DestinationProperties,
) -> DestinationProperties:
    """What was set for one destination, over its defaults."""
    if destination.name == "mq.sys.dmq":
        base = DMQ_PROPERTIES
    else:
        base = auto_queue if destination.kind is Kind.QUEUE else auto_topic
    given: dict[str, Any] = {
        attribute: settings.named(setting, name)
        for attribute, setting in PROPERTY_SETTINGS.items()
        if name in settings.names(setting)
    }
    if given.get("last_value_key") and (
        destination.kind is Kind.TOPIC or destination.name == "mq.sys.dmq"
    ):
        raise ValueError(
            f"imq.destination.{name}.lastValueKey: expected a queue other than mq.sys.dmq"
        )
    if "limit_behavior" in given:
        given["limit_behavior"] = LimitBehavior(given["limit_behavior"])
    policy: dict[str, Any] = {
        attribute: settings.named(setting, name)
        for attribute, setting in POLICY_SETTINGS.items()
        if name in settings.names(setting)
    }
    return replace(base, **given, redelivery=replace(base.redelivery, **policy))
