"""Requests to the admin service and their answers.

Owns the form: paths, JSON, the status of each error. Knows no resource; each module of resources
adds its own with :meth:`Routes.add`.

An answer is a JSON value. An error is ``{"error": {"text": TEXT, "code": CODE}}``: the text is a
sentence for an operator, the code is one of Open MQ's (``BB4006``) where it has one, else a word.
A defect is ``internal_error`` with the number of an incident, which the log has, too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from http import HTTPStatus
from inspect import isawaitable
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, unquote

from klein import Klein
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.interfaces import IPullProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from werkzeug.exceptions import HTTPException
from zope.interface import implementer

from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.link.status import WrongState
from bridge.manager import NotReloadable, OtherType, UnknownBridge, UnknownType
from bridge.xa.errors import UnknownTransaction
from bridge.xa.errors import WrongState as WrongStateOfTransaction
from gateway.admin.service.audit import AuditLine
from gateway.admin.service.roles import Role, needed
from gateway.instance.listening import peer_host
from gateway.instance.settings import SettingsError
from gateway.messaging.errors import MessagingError
from gateway.stomp.open_listeners import ListenerFailed, ListenersRefused, UnknownListener

JSON: Final = "application/json"
#: Types of values that ``json`` takes as they are.
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
#: Parts of a long answer that are written at once.
_WRITTEN: Final = 200

_log: Final = Logger(namespace="bridge.admin")

#: Answers a request: with a value that ``json`` takes, in which there may be dataclasses and
#: enumerations, with :class:`Plain` or :class:`Written`.
Answer = Callable[..., Any]


class Refused(Exception):
    """What was asked cannot be done.

    :param text: why, a sentence for the operator.
    :param code: for programs.
    :param status: HTTP's.
    :param headers: of the answer.
    """

    def __init__(
        self,
        text: str,
        code: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Plain:
    """An answer that is no JSON.

    :param content_type: its media type.
    """

    body: bytes
    content_type: str


class Written:
    """An answer that writes itself."""

    def write(self, request: Any) -> Deferred[bytes] | bytes:
        """Write to Twisted's ``request``.

        :returns: what is left to write, at once or when all else was written or the client has gone.
        """
        raise NotImplementedError


class LongList(Written):
    """An answer that is a JSON object with one very long list in it.

    It is encoded and written in parts, so that other work goes on meanwhile.

    :param name: the list's.
    """

    def __init__(self, name: str) -> None:
        self._parts = [b"{" + _octets(name) + b": ["]

    def add(self, value: object) -> None:
        """One more value of the list."""
        if len(self._parts) > 1:
            self._parts.append(b", ")
        self._parts.append(_octets(value))

    def write(self, request: Any) -> Deferred[bytes]:
        """Write it as fast as the client reads it.

        :returns: fires with what is left to write, when all was written or the client has gone.
        """
        self._parts.append(b"]}\n")
        request.setHeader(b"Content-Type", JSON.encode())
        request.setHeader(b"Content-Length", str(sum(map(len, self._parts))).encode())
        written: Deferred[bytes] = Deferred()
        request.registerProducer(_Parts(request, self._parts, written), False)
        return written


@implementer(IPullProducer)
class _Parts:
    """Writes parts of an answer whenever those before are in the kernel."""

    def __init__(self, request: Any, parts: Sequence[bytes], written: Deferred[bytes]) -> None:
        self._request = request
        self._parts = iter(parts)
        self._written = written

    def resumeProducing(self) -> None:
        octets = b"".join(islice(self._parts, _WRITTEN))
        if octets:
            self._request.write(octets)
        else:
            self._request.unregisterProducer()
            self.stopProducing()

    def stopProducing(self) -> None:
        self._parts = iter(())
        if not self._written.called:
            self._written.callback(b"")


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """What was asked for, and by whom.

    :param user: who asks, authenticated, and
    :param role: what they may do.
    :param query: the parameters of the URL, by name.
    :param body: the JSON object that came with it; empty if none did.
    :param host: of the address in the browser, without a port; empty where no page asks.
    """

    user: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    role: Role = Role.VIEWER
    host: str = ""

    def text(self, name: str, default: str = "") -> str:
        """A text of the body, else of the URL. :raises Refused: it is no text."""
        value = self.body.get(name)
        if value is None:
            return self.query.get(name, default)
        if not isinstance(value, str):
            raise Refused(f"{name} is {value!r}; expected text", "bad_request")
        return value

    def needed(self, name: str) -> str:
        """A text that must not be empty. :raises Refused: it is missing."""
        value = self.text(name)
        if not value:
            raise Refused(f"{name} is missing", "bad_request")
        return value

    def texts(self, name: str) -> list[str]:
        """Return texts of the body; empty where they are missing.

        :raises Refused: they are something else.
        """
        value = self.body.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise Refused(f"{name} is {value!r}; expected a list of texts", "bad_request")
        return list(value)

    def flag(self, name: str) -> bool:
        """Return a truth value; false where it is missing.

        :raises Refused: it is neither true nor false.
        """
        value = self.body.get(name, self.query.get(name, False))
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if not isinstance(value, bool):
            raise Refused(f"{name} is {value!r}; expected true or false", "bad_request")
        return value

    def number(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """A whole number. :raises Refused: it is not one, or out of bounds."""
        value = self.body.get(name, self.query.get(name, default))
        try:
            number = default if isinstance(value, (bool, float)) else int(value)
            if isinstance(value, (bool, float)) or not minimum <= number <= maximum:
                raise ValueError
        except (TypeError, ValueError):
            raise Refused(
                f"{name} is {value!r}; expected a whole number of {minimum} to {maximum}",
                "bad_request",
            ) from None
        return number


class Routes:
    """The resources there are.

    :param log: gets every change that was requested, and defects.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self.app = Klein()
        self._answers: dict[tuple[str, str], Answer] = {}

        def failed(request: Any, failure: Failure) -> bytes:
            return self._failed(request, failure)

        self.app.handle_errors(Exception)(failed)

    def add(self, method: str, path: str, answer: Answer) -> None:
        """Have ``answer`` answer this method at this path.

        ``answer(request, **parts)`` is called with an :class:`AdminRequest` and the path's
        ``<name>`` parts as keywords. It returns, or its awaitable gives, a JSON value,
        :class:`Plain` or :class:`Written`; it may raise :class:`Refused`.

        :param method: ``GET``, ``POST``, ``PUT`` or ``DELETE``. All but GET are logged, and their
            body must be JSON by its content type, which keeps web pages from asking.
        :param path: such as ``/v1/bridges/<name>``, with werkzeug's converters.
        """
        self._answers[method, path] = answer

        async def answered(request: Any, parts: Mapping[str, str]) -> bytes:
            role = needed(method, path)
            audit = None
            if method != "GET" or role > Role.VIEWER:
                audit = request.audit = self._audit(request, method)
            if request.role < role:
                raise forbidden(request.role, role)
            result = await _awaited(answer(_asked(request, method), **parts))
            if audit is not None:
                audit.done(result)
            if isinstance(result, Written):
                octets: bytes = await _awaited(result.write(request))
                return octets
            return _written(request, result)

        def endpoint(request: Any, **parts: str) -> Deferred[bytes]:
            named = {name: unquote(part) for name, part in parts.items()}
            return _to_the_end(ensureDeferred(answered(request, named)))

        endpoint.__name__ = f"route_{len(self._answers)}"
        self.app.route(path, methods=[method])(endpoint)

    def has(self, method: str, path: str) -> bool:
        """Whether there is a route, by the very path that it was added with."""
        return (method, path) in self._answers

    async def perform(self, method: str, path: str, asked: AdminRequest, **parts: str) -> Any:
        """Answer a request that was not made by HTTP, as the route would.

        :param path: as the route was added.
        :raises Refused: the role is too low, or as the route refuses; so may other errors be raised
            that :func:`refusal` knows.
        """
        role = needed(method, path)
        if asked.role < role:
            raise forbidden(asked.role, role)
        return await _awaited(self._answers[method, path](asked, **parts))

    def _audit(self, request: Any, method: str) -> AuditLine:
        try:
            asked = _asked(request, method)
        except Refused:
            # What it is about cannot be read, and it is refused.
            asked = AdminRequest(request.admin)
        host = peer_host(request.getClientAddress())
        given = {**asked.query, **asked.body}
        return AuditLine(self._log, request.admin, host, method, _path(request), given)

    def _failed(self, request: Any, failure: Failure) -> bytes:
        refused = refusal(failure.value)
        if refused is None:
            refused = internal_error(self._log, request, failure)
        audit: AuditLine | None = getattr(request, "audit", None)
        if audit is None and request.method not in (b"GET", b"HEAD"):
            # There is nothing at that path.
            audit = self._audit(request, request.method.decode("ascii", "replace"))
        if audit is not None:
            audit.refused(refused.text)
        return write_refusal(request, refused)


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result


def forbidden(role: Role, wanted: Role) -> Refused:
    """Refuse what needs a higher role."""
    return Refused(
        f"that needs the role {wanted.word}, and yours is {role.word}",
        "forbidden",
        HTTPStatus.FORBIDDEN,
    )


def _to_the_end(doing: Deferred[bytes]) -> Deferred[bytes]:
    """Return the same result, shielded from cancellation.

    Klein cancels a request whose client is gone, which must not end it half way.
    """
    told: Deferred[bytes] = Deferred()

    def pass_on(result: bytes | Failure) -> None:
        if not told.called:
            told.callback(result)
        elif isinstance(result, Failure) and refusal(result.value) is None:
            _log.failure("a request failed whose client is gone", result)

    doing.addBoth(pass_on)
    return told


def internal_error(log: Logger, request: Any, failure: Failure) -> Refused:
    """Log a defect, and return how it is answered."""
    incident = secrets.token_hex(4)
    log.failure("incident {incident}: {path}", failure, incident=incident, path=_path(request))
    return Refused(
        f"internal error, incident {incident}; the server's log has it",
        "internal_error",
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def check_text(request: Any) -> None:
    """Check the host and the path. :raises Refused: one is not UTF-8."""
    parts = {"host": request.getRequestHostname(), "path": b"/".join(request.postpath)}
    for name, octets in parts.items():
        try:
            octets.decode()
        except UnicodeDecodeError:
            raise Refused(f"the {name} of the request is not UTF-8", "bad_request") from None


def quote_path(request: Any) -> None:
    """Quote the parts of the path again, before the routes see it.

    Twisted has unquoted them.

    Or a slash in the name of a bridge would part it: ``/v1/links/a%2Fb`` is the bridge ``a/b``, and
    not link ``b`` of ``a``. Endpoints get the parts unquoted.
    """
    request.postpath = [quote(part, safe="").encode() for part in request.postpath]


def _path(request: Any) -> str:
    path: str = request.path.decode("ascii", "replace")
    return path


#: Errors whose text is for the operator, with their code and HTTP's status.
_REFUSALS: Final[Mapping[type[Exception], tuple[str, HTTPStatus]]] = {
    WrongState: ("wrong_state", HTTPStatus.CONFLICT),
    UnknownType: ("BB4005", HTTPStatus.BAD_REQUEST),
    UnknownBridge: ("BB4006", HTTPStatus.NOT_FOUND),
    OtherType: ("BB4007", HTTPStatus.CONFLICT),
    NotReloadable: ("not_reloadable", HTTPStatus.CONFLICT),
    UnknownTransaction: ("unknown_transaction", HTTPStatus.NOT_FOUND),
    WrongStateOfTransaction: ("wrong_state", HTTPStatus.CONFLICT),
    SettingsError: ("configuration", HTTPStatus.CONFLICT),
    ListenersRefused: ("configuration", HTTPStatus.CONFLICT),
    UnknownListener: ("unknown_service", HTTPStatus.NOT_FOUND),
    ListenerFailed: ("cannot_listen", HTTPStatus.CONFLICT),
    MessagingError: ("messaging", HTTPStatus.CONFLICT),
}


def refusal(error: BaseException | None) -> Refused | None:
    """Return how an error is answered; None for a defect."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, ConfigurationError):
        return Refused(
            "\n".join(map(_marked, error.problems)), "configuration", HTTPStatus.CONFLICT
        )
    for kind, (code, status) in _REFUSALS.items():
        if isinstance(error, kind):
            return Refused(str(error), code, status)
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.code or 500)
        methods = getattr(error, "valid_methods", None)
        headers = {"Allow": ", ".join(sorted(methods))} if methods else {}
        return Refused(status.description or status.phrase, status.name.lower(), status, headers)
    return None


def _marked(problem: Problem) -> str:
    # Among errors, a warning must say that it is one.
    return f"Warning: {problem}" if problem.severity is Severity.WARNING else str(problem)


def write_refusal(request: Any, refused: Refused) -> bytes:
    """Set status and headers on Twisted's ``request``; return the body."""
    request.setResponseCode(refused.status.value, refused.status.phrase.encode())
    for name, value in refused.headers.items():
        request.setHeader(name.encode(), value.encode("ascii", "replace"))
    return _written(request, {"error": {"text": refused.text, "code": refused.code}})


def _written(request: Any, result: object) -> bytes:
    if isinstance(result, Plain):
        content_type, body = result.content_type, result.body
    else:
        content_type, body = JSON, _octets(result) + b"\n"
    request.setHeader(b"Content-Type", content_type.encode())
    request.setHeader(b"Content-Length", str(len(body)).encode())
    return body


def _octets(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=plain).encode("utf-8", "backslashreplace")


def plain(value: object) -> object:
    """Return a value as ``json`` takes it.

    Dataclasses become mappings of their fields, enumerations their values.
    """
    # Most are, and there may be millions. An enumeration's members have its own type.
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def _asked(request: Any, method: str) -> AdminRequest:
    query = {
        name.decode("utf-8", "replace"): values[-1].decode("utf-8", "replace")
        for name, values in request.args.items()
    }
    body: Any = {}
    if method != "GET":
        content_type = (request.getHeader("Content-Type") or "").split(";")[0].strip().lower()
        if content_type != JSON:
            raise Refused(
                f"expected Content-Type: {JSON}", "bad_request", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
            )
        request.content.seek(0)
        octets = request.content.read()
        try:
            body = json.loads(octets) if octets else {}
        except (ValueError, RecursionError) as error:
            raise Refused(f"the body is no JSON: {error}", "bad_request") from None
        if not isinstance(body, dict):
            raise Refused("the body is no JSON object", "bad_request")
    return AdminRequest(request.admin, query, body, request.role)
