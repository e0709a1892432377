"""What CONNECT asks for: version, heart-beats, identity.

STOMP 1.2, "Connecting" and "Heart-beating".

Pure: from a head to values. Whether the user may connect is the provider's to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.messaging.provider import Credentials
from gateway.stomp.lifetime import Lifetime
from gateway.stomp.profiles import Profile
from gateway.stomp.refusals import CommandRefused, Refusal
from gateway.stomp.session.peer import Subject
from gateway.stomp.wire import Head, ShapedHead, Version, serialize

#: Where a client sends a newer token to; no destination of a message.
TOKEN = "/session/token"
_SAID = TOKEN.encode()
_LONGEST_TOKEN = 16 * 1024
_BEATS = re.compile(r"([0-9]{1,9}),([0-9]{1,9})")
_VERSIONS = {str(version): version for version in Version}
_SPOKEN = ",".join(_VERSIONS)


class Heartbeat(NamedTuple):
    """What was agreed, in milliseconds; 0 is no heart-beat.

    :param send: octets go to the client at least so often.
    :param receive: the client sends some at least so often.
    :param wanted: how often the client is asked to send some, where it has promised nothing.
    :param silence: after how long a silence it is ended; 0 where ``receive`` and the bridge's settings
        say it.
    """

    send: int
    receive: int
    wanted: int = 0
    silence: int = 0


def negotiate(head: Head) -> Version:
    """Return the highest version that both sides speak.

    The client may list them in any order; 1.0 where it lists none.

    :raises CommandRefused: they share no version; the ERROR has a ``version`` header with ours.
    """
    accepted = head.headers.get("accept-version")
    if accepted is None:
        return Version.V1_0
    common = [
        _VERSIONS[token] for token in map(str.strip, accepted.split(",")) if token in _VERSIONS
    ]
    if not common:
        raise CommandRefused(
            f"accept-version '{accepted[:40]}' has none of the versions spoken here: {_SPOKEN}",
            {"version": _SPOKEN},
            refusal=Refusal.VERSION,
        )
    return max(common)


def check_host(head: Head, hosts: Sequence[str]) -> None:
    """Check which virtual host CONNECT is for.

    :param hosts: those that there are; empty for any.
    :raises CommandRefused: it is for another.
    """
    host = head.headers.get("host")
    if hosts and host is not None and host not in hosts:
        raise CommandRefused(
            f"host '{host[:200]}' is not served here: expected {' or '.join(hosts)}",
            refusal=Refusal.HOST,
            subject=host[:200],
        )


def heartbeat(
    head: Head,
    send_ms: int,
    receive_ms: int,
    wanted_ms: int = 0,
    lifetime: Lifetime | None = None,
) -> Heartbeat:
    """What both sides' heart-beats come to.

    :param send_ms: the shortest that this side promises, 0 for none.
    :param receive_ms: the shortest that it wants, 0 for none.
    :param wanted_ms: what CONNECTED asks of a client that sends none.
    :param lifetime: says the last two, and how long a silence may be; None where no setting of the
        listener does.
    :raises CommandRefused: the header is not two numbers.
    """
    text = head.headers.get("heart-beat")
    silence = 0 if lifetime is None else lifetime.unpromised
    if text is None:
        return Heartbeat(0, 0, silence=silence)
    found = _BEATS.fullmatch(text.replace(" ", ""))
    if found is None:
        raise CommandRefused(
            f"heart-beat '{text[:40]}' is not two numbers of milliseconds with a comma"
        )
    can, wants = int(found[1]), int(found[2])
    send = max(send_ms, wants) if send_ms and wants else 0
    if lifetime is None:
        receive = max(receive_ms, can) if receive_ms and can else 0
        return Heartbeat(send, receive, 0 if can else wanted_ms)
    if can:
        receive, silence = lifetime.promised(can)
        return Heartbeat(send, receive, silence=silence)
    return Heartbeat(send, 0, lifetime.wanted, silence)


def credentials(
    head: Head,
    address: str,
    certificate: Subject | None,
    token: str | None = None,
    certificate_groups: bool = False,
    default: str = "",
) -> Credentials:
    """Who wants to connect.

    :param certificate: whose name stands in for login and passcode; None where there is no such
        name, or the operator does not accept it.
    :param token: that came before the frame, and stands in for a passcode.
    :param certificate_groups: its organizational units are groups.
    :param default: login and passcode of those who give neither; "" for none.
    :raises CommandRefused: ``login`` or ``passcode`` is missing (Open MQ's Table 12-11).
    """
    headers = head.headers
    if token is not None and not headers.get("passcode"):
        return Credentials(headers.get("login", ""), token, address)
    if "login" not in headers and "passcode" not in headers and certificate is not None:
        groups = certificate.units if certificate_groups else None
        return Credentials(certificate.name, "", address, certificate.name, groups)
    if default and not headers.get("login") and not headers.get("passcode"):
        return Credentials(default, default, address)
    for name in ("login", "passcode"):
        if name not in headers:
            raise CommandRefused(
                f"{head.command} without {name}: both login and passcode are required"
            )
    return Credentials(headers["login"], headers["passcode"], address)


def is_renewal(head: Head) -> bool:
    """Whether a SEND brings a newer token for the session."""
    if isinstance(head, ShapedHead):
        meaning = head.meaning
        # Others of its kind were sent to a destination; or its lines do not say it, which costs
        # less to see than to read them.
        if meaning.plan is not None or _SAID not in meaning.lines:
            return False
    return head.headers.get("destination") == TOKEN


def renewed(head: Head, body: bytes, address: str) -> Credentials:
    """Who is to go on, by the token that a SEND brings.

    :raises CommandRefused: it is in a transaction, or no text.
    """
    if "transaction" in head.headers:
        raise CommandRefused(f"SEND to {TOKEN} cannot be in a transaction")
    try:
        token = body[: _LONGEST_TOKEN + 1].decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(token) > _LONGEST_TOKEN:
        raise CommandRefused(
            f"SEND to {TOKEN} without a token as its body, of at most {_LONGEST_TOKEN} bytes"
        )
    return Credentials("", token, address)


def connected_frame(
    version: Version,
    identifier: str,
    profile: Profile,
    beats: Heartbeat,
    given: Mapping[str, str],
) -> bytes:
    """The answer to CONNECT (STOMP 1.2, "CONNECTED Frame").

    :param identifier: of the connection.
    :param profile: which headers there are, and how they begin.
    :param given: the headers of CONNECT. The original answers ``receipt`` here; ActiveMQ answers
        its own ``request-id`` as well.
    """
    headers = {"server": profile.server} if profile.server else {}
    headers["session"] = profile.session_of(identifier)
    if profile.tells_unasked or "heart-beat" in given:
        headers["heart-beat"] = f"{beats.send},{beats.receive or beats.wanted}"
    if profile.tells_unasked or "accept-version" in given:
        headers["version"] = str(version)
    request, receipt = given.get("request-id"), given.get("receipt")
    if request is None and profile.tells_requests:
        request = receipt
    if request is not None:
        headers["response-id"] = headers["receipt-id"] = request
    if receipt is not None:
        headers["receipt-id"] = receipt
    return serialize("CONNECTED", headers.items()) + b"\n"
