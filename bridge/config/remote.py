"""Read the XML configuration of a bridge from a web server.

The document is bounded in size and in time. The request is made by Twisted's client: it can be cancelled at any time, and leaves no thread
behind with a server that does not answer. A redirection is an error that names where it leads,
because a configuration that may hold passwords comes from where the operator says and from nowhere
else.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, ensureDeferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.iweb import IPolicyForHTTPS, IResponse

from bridge.config.document import LARGEST, of_document, too_large
from bridge.config.problems import ConfigurationError
from gateway.instance.settings import printable
from gateway.reactor.bodies import BodyTooLong, read_body

TIMEOUT_S: Final = 30.0
"""Seconds in which the whole document must have arrived."""


def fetch(
    url: str, reactor: Any, trust: IPolicyForHTTPS | None = None, timeout_s: float = TIMEOUT_S
) -> Deferred[bytes]:
    """Fetch the document at an ``http:`` or ``https:`` URL.

    :param reactor: Twisted's.
    :param trust: which certificates are trusted; None is those that the system trusts.
    :param timeout_s: seconds in which all of it must have arrived.
    :return: fires with the document. Fails with :class:`ConfigurationError` where there is no
        answer, another status than 200, or too large a document. It can be cancelled.
    """
    return ensureDeferred(_within(url, reactor, trust, timeout_s))


async def _within(url: str, reactor: Any, trust: IPolicyForHTTPS | None, timeout_s: float) -> bytes:
    """Turn all errors of the client into ConfigurationError."""
    policy = BrowserLikePolicyForHTTPS() if trust is None else trust  # type: ignore[no-untyped-call]
    agent = Agent(reactor, policy)  # type: ignore[no-untyped-call]
    fetching = ensureDeferred(_fetched(agent, url))
    fetching.addTimeout(timeout_s, reactor, _timed_out)
    try:
        return await fetching
    except TimeoutError as failed:
        raise _without(url, f"it has not answered in full within {timeout_s:g} seconds") from failed
    except (ResponseFailed, RequestTransmissionFailed) as failed:
        if any(isinstance(one.value, CancelledError) for one in failed.reasons):
            raise CancelledError from failed
        raise _without(url, "; ".join(_sentence(one.value) for one in failed.reasons)) from failed
    except (ConnectError, ConnectionClosed, DNSLookupError, SSL.Error, ValueError) as failed:
        raise _without(url, _sentence(failed)) from failed


async def _fetched(agent: Agent, url: str) -> bytes:
    response = await agent.request(b"GET", url.encode("ascii"))
    if response.code != 200:
        status = f"{response.code} {bytes(response.phrase).decode('latin-1')}".strip()
        moved = response.headers.getRawHeaders(b"location") or []
        leads = (
            f", which leads to {moved[0].decode('latin-1')}; a redirection is not followed"
            if moved
            else ""
        )
        _discard(response)
        expected = f"a web server that has the document, and it answers {status}{leads}"
        raise ConfigurationError([of_document(url, expected)])
    if isinstance(response.length, int) and response.length > LARGEST:
        _discard(response)
        raise ConfigurationError([too_large(url)])
    try:
        return await read_body(response, LARGEST)
    except BodyTooLong:
        # A truncated document is not well-formed and so is refused later.
        raise ConfigurationError([too_large(url)]) from None


def _discard(response: IResponse) -> None:
    """Close the connection of a response without reading its body."""
    unread = read_body(response, LARGEST)
    unread.addErrback(lambda _: None)
    unread.cancel()


def _timed_out(result: object, timeout_s: float) -> NoReturn:
    """Raise TimeoutError, as Twisted's client wraps the cancellation."""
    raise TimeoutError(timeout_s)


def _without(url: str, reason: str) -> ConfigurationError:
    return ConfigurationError([of_document(url, f"a web server that has the document: {reason}")])


def _sentence(error: BaseException | None) -> str:
    if isinstance(error, SSL.Error) and error.args and isinstance(error.args[0], list):
        return "TLS: " + ", ".join(str(entry[-1]) for entry in error.args[0])
    text = " ".join(str(error).split()).rstrip(".")
    return printable(text or type(error).__name__)
