"""The habits of STOMP servers, by profile.

Owns in what the servers that clients come from differ where STOMP leaves it open, or where a server
goes its own way. A profile sets all of it together, so that an application moves without a change.
``docs/profiles.rst`` has the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gateway.messaging.errors import MessagingError
from gateway.stomp.brokers import DURABLE_NAMES
from gateway.stomp.destinations import PLAIN, ArtemisNames, Naming, PlainNames
from gateway.stomp.error_frames import OWN, SPOKEN, Wording, refusal_of
from gateway.stomp.header_roles import varying
from gateway.stomp.lifetime import Lifetime
from gateway.stomp.message_layouts import ArtemisLayout, ClassicLayout, Layout, RabbitMQLayout
from gateway.stomp.queue_arguments import READ_OF_SEND
from gateway.stomp.rabbitmq_names import RabbitMQNames
from gateway.stomp.refusals import CommandRefused, Refusal
from gateway.stomp.wire import STRICT, Leniency, Varying, Version

_NEVER: Final[frozenset[Version]] = frozenset()
_ALWAYS: Final = frozenset(Version)


#: Artemis' routing types: one consumer gets a message, or each.
ANYCAST: Final = "ANYCAST"
MULTICAST: Final = "MULTICAST"


class Nack(Enum):
    """What NACK does with a message."""

    #: It comes again as the redelivery policy says, and is dead in the end.
    POLICY = "policy"
    #: It comes again at once.
    AGAIN = "again"
    #: It is dead.
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Profile:
    """One server's habits.

    Connecting:

    :param product: what ``server`` of CONNECTED says before the gateway's own name, with ``/`` and a
        version; "" for nothing.
    :param server: the whole header; "" for none.
    :param session: how ``session`` of CONNECTED begins.
    :param session_length: characters of the rest of it.
    :param tells_unasked: CONNECTED has ``version`` and ``heart-beat`` also where CONNECT has nothing
        of them.
    :param tells_requests: ``response-id`` of CONNECTED is the ``receipt`` of CONNECT.
    :param hosts: the values of ``host`` that CONNECT may have, an operator's; empty for any. A
        CONNECT without one is taken, as none had it in STOMP 1.0.
    :param default_user: login and passcode of clients that give neither; "" for none.
    :param pause: after how much of the promised interval a heart-beat goes to the client. By
        default half of it, so that a late one still keeps the promise.
    :param wanted_beats: how often, in milliseconds, CONNECTED asks for heart-beats of a client that
        sends none. They are not waited for.
    :param lifetime: how long clients may be silent, an operator's, which goes before the settings for
        all of them; None as these say.

    Destinations and SEND:

    :param naming: what destinations are called.
    :param composites: commas separate destinations, of SUBSCRIBE as of SEND; else only those of SEND
        that have prefixes.
    :param routing_types: ``destination-type`` and ``subscription-type`` say what a bare name is of;
        where they do not, what there is does.
    :param prefixes: how names begin, the longest first, and the routing type that stands for; an
        operator's.
    :param message_types: ``amq-msg-type`` tells text from bytes.
    :param any_text: a body without ``content-length`` that is not UTF-8 is taken, as bytes.
    :param any_priority: one above 9 is 9, and one below 0 is 0.
    :param maps: ``transformation`` tells that a text is a map.
    :param persistent: messages are, where SEND does not say it.
    :param refuses_message_id: SEND must not have a ``message-id``.
    :param keeps_timestamps: ``timestamp`` of SEND is that of the message.
    :param reply_to_as_text: ``reply-to`` may be any text, and goes through as it is.
    :param replies_come_unasked: what is sent to a temporary queue that a SEND has named in
        ``reply-to`` comes without a SUBSCRIBE.

    Subscriptions:

    :param default_ids: SUBSCRIBE and UNSUBSCRIBE may do without ``id`` in every version.
    :param default_id: what precedes the destination in the ``id`` of a subscription without one, and
    :param tells_default_id: MESSAGE has that ``id``.
    :param repeats_default_ids: several subscriptions to one destination may do without ``id``.
    :param durable_names: headers that name a durable subscription, the first that is there counts.
    :param ends_durable_in_use: UNSUBSCRIBE removes a durable subscription that the connection still
        consumes from; else that is an ERROR.
    :param windows_in_bytes: Artemis' headers for it say how many bytes may be unacknowledged.
    :param shares_client_ids: several connections may have one client identifier, and share its
        durable subscriptions.
    :param queue_arguments: headers of SUBSCRIBE say how the queue is made that a subscription has:
        connections may share that of a topic, which may be durable without a client identifier.
    :param durable_queues: SUBSCRIBE to a queue may name a durable subscription, which is ignored.
    :param unknown_ack_is_auto: so is a value of ``ack`` that STOMP does not have.
    :param layout: of MESSAGE; None is the gateway's own.

    Acknowledgements and transactions:

    :param join_acknowledgements: ACK and NACK of any subscription may be made in a transaction.
    :param several_transactions: a connection may have more than one open, and SUBSCRIBE is in none.
    :param receipts_after_commit: the RECEIPT of a SEND in a transaction follows that of COMMIT.
    :param tagged_ids: the id of a delivery is what follows the last ``@@``.
    :param strict_acknowledgements: in 1.2 only ``id`` names a delivery.
    :param ignores_subscription: versions in which ``subscription`` of ACK and NACK is not looked at.
    :param nack: what NACK does.
    :param keeps_unstored: what is dead by NACK is in the dead message queue also where it is not
        persistent.
    :param acknowledges_across: ACK and NACK of a subscription with ``ack:client`` are of all that was
        delivered before on the connection and is not settled, whatever subscription it came by.
    :param nacks_one: NACK is of one message, whatever ``ack`` of the subscription is.
    :param repeats_nacked: what NACK has named in a transaction comes again when that is aborted.

    Errors:

    :param survives: versions in which a connection goes on after an ERROR over a frame that changed
        nothing.
    :param fatal: after these it does not.
    :param wording: of ERROR.

    Frames:

    :param leniency: what is taken beyond STOMP.
    :param longest_command: octets of a command line that is read, whatever it says.
    :param read: headers of SEND by whose values this profile goes, and others do not.
    """

    name: str
    product: str = ""
    server: str = "stomp-gateway"
    session: str = ""
    session_length: int = 32
    tells_unasked: bool = True
    tells_requests: bool = False
    hosts: tuple[str, ...] = ()
    default_user: str = ""
    pause: float = 0.5
    wanted_beats: int = 0
    lifetime: Lifetime | None = None
    naming: Naming = PLAIN
    composites: bool = False
    routing_types: bool = False
    prefixes: tuple[tuple[str, str], ...] = ()
    message_types: bool = False
    any_text: bool = False
    any_priority: bool = False
    maps: bool = False
    persistent: bool = True
    refuses_message_id: bool = False
    keeps_timestamps: bool = False
    reply_to_as_text: bool = False
    replies_come_unasked: bool = False
    default_ids: bool = False
    default_id: str = "/subscription-to/"
    tells_default_id: bool = False
    repeats_default_ids: bool = False
    durable_names: tuple[str, ...] = DURABLE_NAMES
    ends_durable_in_use: bool = True
    windows_in_bytes: bool = False
    shares_client_ids: bool = False
    queue_arguments: bool = False
    durable_queues: bool = False
    unknown_ack_is_auto: bool = False
    layout: Layout | None = None
    join_acknowledgements: bool = False
    several_transactions: bool = False
    receipts_after_commit: bool = False
    tagged_ids: bool = False
    strict_acknowledgements: bool = False
    ignores_subscription: frozenset[Version] = _NEVER
    nack: Nack = Nack.POLICY
    keeps_unstored: bool = True
    acknowledges_across: bool = False
    nacks_one: bool = False
    repeats_nacked: bool = False
    survives: frozenset[Version] = _NEVER
    fatal: frozenset[Refusal] = frozenset()
    wording: Wording = OWN
    leniency: Leniency = STRICT
    longest_command: int = 32
    read: frozenset[str] = frozenset()

    def varying(self, name: str) -> Varying:
        """Which headers of SEND may vary within a shape: the rule for parsers."""
        if self.keeps_timestamps and name == "timestamp":
            return Varying.OWN
        return Varying.MEANING if name in self.read else varying(name)

    def pause_of(self, promised_ms: int) -> int:
        """Return after how long a silence a heart-beat goes out; 0 for never."""
        return max(int(promised_ms * self.pause), 1) if promised_ms else 0

    def session_of(self, identifier: str) -> str:
        """Return ``session`` of CONNECTED, from a connection's identifier."""
        return self.session + identifier[: self.session_length]

    def adapted(self, version: str, server: str = "", join: bool | None = None) -> Profile:
        """Return the profile as an operator has it.

        :param version: this software's, for the ``server`` header.
        :param server: another value of that header; "" for none.
        :param join: whether acknowledgements join transactions; None as the profile says.
        """
        return replace(
            self,
            server=server or f"{self.product} stomp-gateway/{version}".lstrip(),
            join_acknowledgements=self.join_acknowledgements if join is None else join,
        )

    def with_prefixes(self, anycast: Sequence[str], multicast: Sequence[str]) -> Profile:
        """Return the profile with prefixes of names.

        :param anycast: those of queues, and
        :param multicast: those of topics.
        """
        named = [(each, ANYCAST) for each in anycast] + [(each, MULTICAST) for each in multicast]
        longest_first = sorted(named, key=lambda each: len(each[0]), reverse=True)
        return replace(self, prefixes=tuple(longest_first))


def survives(profile: Profile, error: BaseException, version: Version) -> bool:
    """Whether a connection survives this error, whose frame changed nothing."""
    return (
        version in profile.survives
        # Those of a kind of their own are about the connection.
        and (type(error) is CommandRefused or isinstance(error, MessagingError))
        and refusal_of(error)[0] not in profile.fatal
    )


#: Open MQ's Table 12-11, and what this project has decided where that is silent.
OPENMQ: Final = Profile("openmq")

#: STOMP's specification, where it says more than Open MQ's table.
STANDARD: Final = Profile(
    "standard",
    join_acknowledgements=True,
    several_transactions=True,
)

ACTIVEMQ: Final = Profile(
    "activemq",
    "ActiveMQ/5.17",
    leniency=Leniency(
        any_header=True,
        any_body=True,
        counts_messages_only=True,
        any_escape=True,
        any_command=True,
        nul_in_command=True,
    ),
    longest_command=1024,
    read=frozenset(("amq-msg-type", "transformation")),
    session="ID:",
    tells_requests=True,
    default_user="guest",
    pause=0.95,
    naming=PlainNames(
        bare=True,
        dead="ActiveMQ.DLQ",
        remote=True,
        trims=True,
        none_or_more=True,
        options=True,
        schemes=True,
    ),
    composites=True,
    message_types=True,
    any_text=True,
    any_priority=True,
    maps=True,
    persistent=False,
    keeps_timestamps=True,
    reply_to_as_text=True,
    repeats_default_ids=True,
    durable_names=("activemq.subscriptionName", "activemq.subcriptionName", *DURABLE_NAMES),
    ends_durable_in_use=False,
    unknown_ack_is_auto=True,
    layout=ClassicLayout("/queue/ActiveMQ.DLQ"),
    join_acknowledgements=True,
    several_transactions=True,
    strict_acknowledgements=True,
    ignores_subscription=frozenset((Version.V1_0,)),
    nack=Nack.DEAD,
    keeps_unstored=False,
    nacks_one=True,
    survives=_ALWAYS,
    wording=Wording(
        {
            Refusal.EMPTY_DESTINATION: (
                "Invalid empty or 'null' Destination header",
                "Invalid empty or 'null' Destination header\n",
            ),
            Refusal.UNKNOWN_COMMAND: ("Unknown STOMP action: {}", "Unknown STOMP action: {}\n"),
            Refusal.NOT_CONNECTED: ("Not connected.", "Not connected.\n"),
            Refusal.CONNECTED: ("Already connected.", "Already connected.\n"),
            **{
                refusal: (f"The maximum {what} was exceeded", f"The maximum {what} was exceeded\n")
                for refusal, what in (
                    (Refusal.COMMAND_LENGTH, "command length"),
                    (Refusal.HEADER_LENGTH, "header length"),
                    (Refusal.HEADERS, "number of headers"),
                    (Refusal.BODY_LENGTH, "data length"),
                    (Refusal.FRAME_LENGTH, "frame size"),
                )
            },
            Refusal.NO_SUBSCRIPTION: ("No subscription matched.", "No subscription matched.\n"),
        }
    ),
)

_NO_LOGIN: Final = "Security Error occurred: User name [{}] or password is invalid"
ARTEMIS: Final = Profile(
    "artemis",
    "ActiveMQ-Artemis/2.28",
    leniency=Leniency(any_body=True, drops_rest=True),
    read=frozenset(("destination-type",)),
    default_user="guest",
    wanted_beats=30_000,
    tells_unasked=False,
    naming=ArtemisNames(),
    routing_types=True,
    any_text=True,
    persistent=False,
    reply_to_as_text=True,
    default_ids=True,
    default_id="subscription/",
    tells_default_id=True,
    windows_in_bytes=True,
    shares_client_ids=True,
    durable_queues=True,
    unknown_ack_is_auto=True,
    layout=ArtemisLayout("DLQ"),
    join_acknowledgements=True,
    several_transactions=True,
    strict_acknowledgements=True,
    ignores_subscription=frozenset((Version.V1_0,)),
    nack=Nack.DEAD,
    repeats_nacked=True,
    survives=frozenset((Version.V1_0, Version.V1_1)),
    wording=Wording({Refusal.LOGIN: (_NO_LOGIN, f"{_NO_LOGIN}\n")}),
)

_RABBITMQ_NAMES: Final = RabbitMQNames()
RABBITMQ: Final = Profile(
    "rabbitmq",
    "RabbitMQ/3.10",
    leniency=Leniency(any_body=True, any_command=True),
    read=frozenset(("message-id",)) | READ_OF_SEND,
    session="session-",
    session_length=22,
    default_user="guest",
    naming=_RABBITMQ_NAMES,
    any_text=True,
    any_priority=True,
    persistent=False,
    refuses_message_id=True,
    reply_to_as_text=True,
    replies_come_unasked=True,
    default_ids=True,
    queue_arguments=True,
    layout=RabbitMQLayout(_RABBITMQ_NAMES),
    join_acknowledgements=True,
    several_transactions=True,
    receipts_after_commit=True,
    tagged_ids=True,
    strict_acknowledgements=True,
    ignores_subscription=_ALWAYS,
    nack=Nack.AGAIN,
    acknowledges_across=True,
    survives=_ALWAYS,
    fatal=frozenset((Refusal.DUPLICATE_SUBSCRIPTION, Refusal.NO_EXCHANGE, Refusal.ACCESS)),
    # As 3.10 has them, ends of lines included.
    wording=Wording(
        {
            Refusal.UNKNOWN_COMMAND: ("Bad command", 'Could not interpret command "{}"\n'),
            Refusal.NOT_CONNECTED: ("Illegal command", "You must log in using CONNECT first"),
            Refusal.VERSION: ("Version mismatch", f"Supported versions are {SPOKEN}\n"),
            Refusal.LOGIN: ("Bad CONNECT", "Access refused for user '{}'\n"),
            Refusal.HOST: ("Bad CONNECT", "Virtual host '{}' access denied"),
            Refusal.ACCESS: ("access_refused", "ACCESS_REFUSED - {}"),
            Refusal.NO_EXCHANGE: ("not_found", "{}"),
            Refusal.NO_DESTINATION: (
                "Missing destination",
                "\"{}\" must include a 'destination' header\n",
            ),
            Refusal.HEADER: ("Invalid header", "'{}' is not allowed on 'SEND'.\n"),
            Refusal.NO_DELIVERY: ("Missing header", "{}\n"),
            Refusal.DUPLICATE_SUBSCRIPTION: (
                "Duplicated subscription identifier",
                "A subscription identified by '{}' already exists.",
            ),
            Refusal.DURABLE_WITHOUT_ID: (
                "Missing Header",
                "Header 'id' is required for durable subscriptions",
            ),
        },
        versions=True,
    ),
)

#: By their names, the default first.
PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile for profile in (OPENMQ, STANDARD, ACTIVEMQ, ARTEMIS, RABBITMQ)
}
