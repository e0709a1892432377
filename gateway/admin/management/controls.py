"""What a resource has: attributes, and operations with parameters.

Owns how a name and parameters become a call, and how a result becomes JSON. What there is to ask of
the broker, of queues and of addresses, modules of their own know.

Names and parameters are Artemis's, from its ``ActiveMQServerControl``, ``QueueControl`` and
``AddressControl``. As there, ``getNAME`` and ``isNAME`` are operations for an attribute, and the
first letter of an attribute may be small.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final, Generic, TypeVar

from twisted.logger import Logger

from gateway.admin.service.audit import AuditLine
from gateway.admin.service.requests import AdminRequest, Refused, Routes, plain, refusal
from gateway.admin.service.roles import Role, needed
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.views import DestinationView
from gateway.broker.sessions.provider import EmbeddedProvider

V = TypeVar("V")

#: Bytes of the parameters of a request.
MOST_PARAMETERS: Final = 64 * 1024
#: Names, or rows of a table, in one reply.
MOST_LISTED: Final = 10_000
#: What an attribute's name as an operation begins with.
_GETTERS: Final = ("get", "is")

#: Parameters by name.
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Asking:
    """Somebody who asks.

    :param user: and
    :param host: the address of the client, for the audit.
    :param role: what the user may do now.
    :param routes: the admin service's.
    :param log: gets the lines of the audit.
    """

    user: str
    host: str
    role: Role
    routes: Routes
    broker: BrokerAdministration
    provider: EmbeddedProvider
    log: Logger

    async def act(self, method: str, path: str, **given: object) -> Mapping[str, Any]:
        """Do what a request to the admin service does, with a line of the audit.

        :param path: as the route was added.
        :returns: its answer, where that has names.
        :raises Exception: as :meth:`~gateway.admin.service.requests.Routes.perform`.
        """
        line = None
        if method != "GET" or needed(method, path) > Role.VIEWER:
            line = AuditLine(self.log, self.user, self.host, method, path, given, "message")
        try:
            asked = AdminRequest(self.user, {}, given, self.role)
            answer = await self.routes.perform(method, path, asked)
        except Exception as error:
            refused = refusal(error)
            if line is not None:
                line.refused("internal error" if refused is None else refused.text)
            raise
        if line is not None:
            line.done(answer)
        return answer if isinstance(answer, Mapping) else {}

    async def destinations(self, type: str = "") -> list[DestinationView]:
        """Return the destinations, temporary ones too.

        :raises Refused: they are more than one reply has.
        """
        found: list[DestinationView] = []
        count = 0

        def show(view: DestinationView) -> None:
            nonlocal count
            count += 1
            if count <= MOST_LISTED:
                found.append(view)

        await self.broker.list_destinations(show, type, True)
        check_count(count, f"{type or 'destination'}s", "imqcmd list dst")
        return found


def check_count(count: int, what: str, command: str) -> None:
    """Check how many there are.

    :raises Refused: they are more than one reply has.
    """
    if count > MOST_LISTED:
        text = f"there are {count} {what}, and a reply has {MOST_LISTED} at most: '{command}' shows them all"
        raise Refused(text, "too_many", HTTPStatus.CONFLICT)


@dataclass(frozen=True)
class Operation(Generic[V]):
    """An operation.

    :param do: does it, given who asks, the resource and the parameters, and returns the result.
    :param forms: the parameters that it may have, such as ``("", "filter:text")``. Of each the type
        is ``text``, which may be null; ``number``, a whole one; or ``flag``.
    """

    do: Callable[[Asking, V, Given], Awaitable[object]]
    forms: Sequence[str] = ("",)

    def given(self, values: Sequence[object]) -> Given | None:
        """Return the parameters by name; None where they have no form."""
        for form in self.forms:
            pairs = [each.split(":") for each in form.split()]
            if len(pairs) == len(values) and all(
                _IS[type](value) for (_, type), value in zip(pairs, values, strict=True)
            ):
                return {name: value for (name, _), value in zip(pairs, values, strict=True)}
        return None

    def shown(self, name: str) -> str:
        """Return how it is asked for, for an error."""
        return " or ".join(f"{name}({', '.join(form.split())})" for form in self.forms)


_IS: Final[Mapping[str, Callable[[object], bool]]] = {
    "text": lambda value: value is None or isinstance(value, str),
    "number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "flag": lambda value: isinstance(value, bool),
}


@dataclass(frozen=True)
class Control(Generic[V]):
    """What resources of a kind have to be asked for.

    :param attributes: by name, what reads each: returns the value, or what gives it.
    :param operations: by name.
    """

    attributes: Mapping[str, Callable[[Asking, V], object]]
    operations: Mapping[str, Operation[V]]

    async def read(self, asking: Asking, resource: str, view: V, attribute: str) -> object:
        """Return the value of an attribute.

        :param resource: its name, for an error.
        :raises Refused: there is no such attribute.
        """
        name = attribute[:1].upper() + attribute[1:]
        read = self.attributes.get(name)
        if read is None:
            raise _unknown(resource, "attribute", attribute, self.attributes)
        return await _awaited(read(asking, view))

    async def invoke(
        self, asking: Asking, resource: str, view: V, name: str, values: Sequence[object]
    ) -> object:
        """Carry an operation out. :returns: its result; None for none.

        :raises Refused: there is no such operation, or not with these parameters.
        :raises Exception: as it fails.
        """
        operation = self.operations.get(name)
        if operation is None:
            for getter in _GETTERS:
                attribute = name.removeprefix(getter)
                if attribute != name and attribute in self.attributes and not values:
                    return await self.read(asking, resource, view, attribute)
            raise _unknown(resource, "operation", name, self.operations)
        given = operation.given(values)
        if given is None:
            kinds = ", ".join("null" if each is None else type(each).__name__ for each in values)
            raise Refused(
                f"operation {name} of {resource} has other parameters than ({kinds}): expected {operation.shown(name)}",
                "bad_request",
            )
        return await operation.do(asking, view, given)


async def _awaited(value: object) -> object:
    return await value if isawaitable(value) else value


def _unknown(resource: str, what: str, name: str, known: Iterable[str]) -> Refused:
    return Refused(
        f"{resource} has no {what} '{name[:200]}' here; it has {', '.join(sorted(known))}",
        f"unknown_{what}",
        HTTPStatus.NOT_FOUND,
    )


def parameters(body: bytes) -> list[object]:
    """Return the parameters of an operation; none for an empty body.

    :raises Refused: the body is no JSON array of texts, numbers and so on, or is too long.
    """
    if len(body) > MOST_PARAMETERS:
        text = f"the body has {len(body)} bytes: {MOST_PARAMETERS} is the limit of parameters"
        raise Refused(text, "too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        text = body.decode()
        values = json.loads(text) if text.strip() else []
        # Escaped halves of characters are no text.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}", "bad_request") from None
    if not isinstance(values, list):
        raise Refused(
            "the body is no JSON array of parameters: expected such as [\"color = 'blue'\"]",
            "bad_request",
        )
    return values


def result_text(value: object) -> str:
    """Return the body of a reply: an array with the value; "" for no value."""
    return "" if value is None else json.dumps([value], ensure_ascii=False, default=plain)


def json_text(value: object) -> str:
    """Return JSON as the text that a result of Artemis's ``…AsJSON`` is."""
    return json.dumps(value, ensure_ascii=False, default=plain)


def page_of(rows: Sequence[Mapping[str, object]], given: Given) -> str:
    """Return rows of a table, as the ``list…`` operations of the broker do.

    :param given: ``options``, JSON with ``field``, ``operation`` and ``value``, "" for all rows;
        ``page``, counted from 1; and ``pageSize``. -1 of either is one page.
    :raises Refused: the options are wrong.
    """
    options, found = _options(given["options"] or ""), list(rows)
    if options is not None:
        name, operation, wanted = options
        match = _MATCHES.get(operation.upper())
        if match is None or any(name not in row for row in rows[:1]):
            expected = f"an operation of {', '.join(_MATCHES)} and a field of the rows"
            raise Refused(
                f"options '{operation[:40]}' of '{name[:40]}': expected {expected}", "bad_request"
            )
        found = [row for row in rows if match(str(row[name]), wanted)]
    page, size = given["page"], given["pageSize"]
    shown = found if page < 1 or size < 1 else found[(page - 1) * size : page * size]
    return json_text({"data": shown, "count": len(found)})


_MATCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "EQUALS": lambda found, wanted: found == wanted,
    "NOT_EQUALS": lambda found, wanted: found != wanted,
    "CONTAINS": lambda found, wanted: wanted in found,
    "NOT_CONTAINS": lambda found, wanted: wanted not in found,
    "GREATER_THAN": lambda found, wanted: _number(found) > _number(wanted),
    "LESS_THAN": lambda found, wanted: _number(found) < _number(wanted),
}


def _options(text: str) -> tuple[str, str, str] | None:
    """Return field, operation and value; None where all rows are wanted."""
    try:
        options = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Refused(f"options are no JSON: {error}", "bad_request") from None
    if not isinstance(options, dict):
        raise Refused("options are no JSON object", "bad_request")
    name, operation, value = (
        str(options.get(key) or "") for key in ("field", "operation", "value")
    )
    return (name, operation, value) if name and operation else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refused(f"'{text[:40]}' is no number", "bad_request") from None
