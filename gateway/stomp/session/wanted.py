"""What SUBSCRIBE wants, from its headers.

Owns where it receives from, which messages it wants there, how it acknowledges, and how many may be
ahead of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.selector.selector import parse
from gateway.stomp import client_headers
from gateway.stomp.destinations import Source, split_queue
from gateway.stomp.profiles import Profile
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.send_plan import Resolve, routed
from gateway.stomp.session.subscription import AUTO_WINDOW, Ack

_ACKS: Final = {ack.value: ack for ack in Ack}
#: Messages that may be unsettled where a client wants any number of them.
_ANY: Final = 1_000_000


def source_of(
    text: str,
    given: dict[str, str],
    profile: Profile,
    resolve: Resolve,
    exists: Callable[[Destination], bool | None],
) -> Source:
    """Return what a subscription to a destination of that name receives from.

    :param exists: says what there is; None where that is not known.
    :raises CommandRefused: it cannot be subscribed to.
    """
    text = routed(text, given, "subscription-type", profile)
    queue = address = ""
    if profile.routing_types:
        text, queue, address = split_queue(text, profile.naming, exists)
    source = profile.naming.source(resolve(text, "destination"))
    if source.unless is not None and exists(source.unless) is not False:
        return Source(source.unless)
    return source._replace(queue=queue, address=address)


def selector_of(given: dict[str, str], source: Source) -> str | None:
    """Return the selector of what a client wants, and means by a name.

    :raises CommandRefused: it is blank.
    :raises InvalidSelector: it is no selector.
    """
    wanted = client_headers.selector(given)
    if wanted is None or not source.selector:
        return wanted or source.selector or None
    # What is wrong with it is said of it alone.
    parse(wanted)
    return f"({wanted}) AND {source.selector}"


def ack_of(given: dict[str, str], profile: Profile) -> Ack:
    """Return how a client acknowledges.

    :raises CommandRefused: STOMP does not have that way.
    """
    ack = _ACKS.get(given.get("ack", "auto"))
    if ack is None and profile.unknown_ack_is_auto:
        return Ack.AUTO
    if ack is None:
        raise CommandRefused(f"ack '{given['ack'][:40]}' is not auto, client or client-individual")
    return ack


def windows_of(
    given: dict[str, str],
    ack: Ack,
    transacted: bool,
    enveloped: bool,
    profile: Profile,
    limit: int,
) -> tuple[int, int]:
    """Return how many messages may be unsettled, and how many bytes of frames.

    The second is 0 where the first counts.

    :param limit: the operator's, in messages.
    :raises CommandRefused: a header has no such number.
    """
    prefetch = None
    wanted = client_headers.byte_window(given) if profile.windows_in_bytes else None
    if wanted is None:
        prefetch = client_headers.prefetch(given)
    elif wanted <= 0:
        prefetch = _ANY if wanted else 1
    elif ack is not Ack.AUTO and not enveloped:
        return 1, wanted
    if transacted:
        return min(prefetch or limit, limit), 0
    if ack is Ack.AUTO:
        return min(prefetch or AUTO_WINDOW, AUTO_WINDOW), 0
    return prefetch or limit, 0
