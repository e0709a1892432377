"""What can be done in the console, and the command that does the same.

Owns what an action is: its words, its form, and which route does it. An action does nothing that the
admin service's own resources do not do, and is refused as they refuse. Owns the log line of each
action, too, whether it was done or refused, and the actions on destinations, bridges and connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from twisted.logger import Logger

from gateway.admin.console import subjects
from gateway.admin.console.subjects import Subject
from gateway.admin.left_behind import why_left
from gateway.admin.service.requests import AdminRequest, Refused, Routes, refusal
from gateway.admin.service.roles import Role, needed
from gateway.instance.problems import counted, printable

_DESTINATION: Final = ("type", "name")
_LINK: Final = ("bridge", "link")

_REFUSED: Final = "audit: {user} from {host} was refused in the console: {command}: {text}"

#: What is not touched where messages are acted on, by the names that count them.
_UNTOUCHED: Final = {
    "unacknowledged": "delivered and not acknowledged, or in transactions",
    "in_transaction": "yet to come of transactions",
    "scheduled": "to be delivered later",
}

Given = Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """What may be filled in before an action is done.

    :param kind: ``text``, ``number``, ``flag``, ``password``, which is never shown again, or ``choice``
        of :attr:`choices`.
    :param help: what it means, a sentence.
    """

    name: str
    label: str
    kind: str = "text"
    default: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    required: bool = False


@dataclass(frozen=True)
class Action:
    """Something that can be done.

    :param title: two or three words.
    :param question: asked before it is done; may have the parameters' names in braces.
    :param method: and
    :param path: of the route, as it was added.
    :param command: the words of the command that does the same; it is given the ``address``, too.
    :param parameters: what it is about; given by the page that offers it.
    :param fields: what else may be given.
    :param done: says what was done, from the route's answer.
    :param dry_run: whether the route can say beforehand what it would do, and
    :param foreseen: says that, from the route's answer.
    :param parts: parameters that are parts of the path, by the path's names.
    :param operation: more parts of the path, which are the same for each thing.
    :param body: what the route is given, from what is not empty.
    :param secret: what it says is shown as it is, and not logged.
    :param subject: finds what it is about; None where it is about nothing that must be there.
    :param back: the page to go to when it is done, and what follows it; "" to stay.
    """

    name: str
    title: str
    question: str
    method: str
    path: str
    command: Callable[[Given], Sequence[str]]
    parameters: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    done: Callable[[Any], str] = lambda answer: "Done."
    dry_run: bool = False
    foreseen: Callable[[Any], str] = lambda answer: _foreseen(answer)
    parts: Mapping[str, str] = field(default_factory=dict)
    operation: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[Given], dict[str, object]] = dict
    danger: bool = False
    back: Callable[[Given], str] = lambda given: ""
    secret: bool = False
    subject: Subject | None = None

    @property
    def role(self) -> Role:
        """Who may do it."""
        return needed(self.method, self.path)

    def given(self, asked: AdminRequest) -> dict[str, str]:
        """Return what the action is about, and what was filled in.

        :raises Refused: a parameter is missing.
        """
        found = {name: asked.needed(name) for name in self.parameters}
        for each in self.fields:
            sent = bool(asked.body)
            if each.kind == "flag":
                value = "true" if asked.text(each.name) == "true" else ""
            else:
                value = asked.text(each.name, "" if sent else each.default)
            found[each.name] = value
        return found


@dataclass
class Asked:
    """An action that was asked for.

    :param address: of the admin service, as the browser knows it: a scheme, a host and a port.
    :param foreseen: what it would do, a sentence.
    :param outcome: what came of it, a sentence; "" before it is done.
    :param failed: whether it was refused.
    :param status: HTTP's, of the page that shows it.
    :param answer: what the route answered, to the action or to a trial.
    """

    action: Action
    given: dict[str, str]
    address: str
    foreseen: str = ""
    outcome: str = ""
    failed: bool = False
    status: HTTPStatus = HTTPStatus.OK
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """The question, with what it is about."""
        return self.action.question.format_map(
            {name: printable(value) for name, value in self.given.items()}
        )

    @property
    def command(self) -> Sequence[str]:
        """The words of the command that does the same."""
        return self.action.command({**self.given, "address": self.address})

    def check(self) -> None:
        """Check that there is a command for what was given.

        :raises Refused: there is not.
        """
        _ = self.command

    async def find(self, routes: Routes, asked: AdminRequest) -> None:
        """Check that what the action is about is there.

        :raises Exception: it is not, as the routes refuse.
        """
        if self.action.subject is not None:
            await self.action.subject(routes, asked, self.given)

    async def missing(self, routes: Routes, asked: AdminRequest) -> Refused | None:
        """Return why what it is about cannot be found; None if it is there."""
        try:
            await self.find(routes, asked)
        except Exception as error:
            refused = refusal(error)
            if refused is None:
                raise
            return refused
        return None

    @property
    def back(self) -> str:
        """The page to go to when it is done; "" to stay."""
        return self.action.back(self.given)

    @property
    def is_complete(self) -> bool:
        """Whether everything that must be filled in is."""
        return all(self.given[each.name] for each in self.action.fields if each.required)

    async def tried(self, routes: Routes, asked: AdminRequest) -> str:
        """Return what the action would do, a sentence."""
        try:
            self.answer = await self._requested(routes, asked, dry_run=True)
        except Exception as error:
            refused = refusal(error)
            if refused is None:
                raise
            self.failed = True
            return refused.text
        return self.action.foreseen(self.answer)

    async def do(self, routes: Routes, asked: AdminRequest) -> str:
        """Do it, and return what was done. :raises Exception: as the route does."""
        self.answer = await self._requested(routes, asked)
        return self.action.done(self.answer)

    async def _requested(
        self, routes: Routes, asked: AdminRequest, dry_run: bool = False
    ) -> Mapping[str, Any]:
        action = self.action
        parts = {part: self.given[name] for part, name in action.parts.items()}
        body = action.body(
            {
                name: value
                for name, value in self.given.items()
                if value and name not in action.parts.values()
            }
        )
        if dry_run:
            body["dry_run"] = True
        request = AdminRequest(asked.user, {}, body, asked.role)
        answer = await routes.perform(
            action.method, action.path, request, **parts, **action.operation
        )
        return answer if isinstance(answer, Mapping) else {}


async def audited(
    log: Logger, user: str, host: str, plan: Asked, routes: Routes, asked: AdminRequest
) -> str:
    """Do what was asked, and log who did what and how it ended.

    :returns: how it ended, a sentence.
    """
    command = _line(plan.command)
    try:
        outcome = await plan.do(routes, asked)
    except Exception as error:
        refused = refusal(error)
        if refused is not None and (missing := await plan.missing(routes, asked)) is not None:
            refused, plan.status = missing, missing.status
        log.info(
            _REFUSED,
            user=user,
            host=host,
            command=command,
            text="internal error" if refused is None else refused.text,
        )
        if refused is None:
            raise
        plan.failed = True
        return refused.text
    log.info(
        "audit: {user} from {host} did in the console: {command}: {outcome}",
        user=user,
        host=host,
        command=command,
        outcome="shown" if plan.action.secret else outcome,
    )
    return outcome


def audit_refusal(
    log: Logger, user: str, host: str, action: Action, asked: AdminRequest, text: str, address: str
) -> None:
    """Log who was refused an action before it was tried, and why.

    :param text: why, a sentence.
    """
    try:
        words = Asked(action, action.given(asked), address).command
    except Refused:
        # Something is missing that the command would need.
        words = [action.name]
    log.info(_REFUSED, user=user, host=host, command=_line(words), text=text)


def _line(words: Sequence[str]) -> str:
    return " ".join(map(printable, words))


def _foreseen(answer: Mapping[str, Any]) -> str:
    told = f"It would take {answer.get('done', 0)} of {answer.get('matched', 0)} messages."
    return told + _left(answer)


def _left(answer: Mapping[str, Any]) -> str:
    told = ""
    if answer.get("left"):
        told += f" {answer['left']} of {answer['matched']} messages stay: {why_left(answer)}."
    if answer.get("gone"):
        told += f" {answer['gone']} were taken by somebody else."
    for name, what in _UNTOUCHED.items():
        if answer.get(name):
            told += f" Not looked at: {counted(answer[name])} of the queue, {what}."
    return told


def _were(count: int, word: str) -> str:
    return f"{counted(count)} {'was' if count == 1 else 'were'} {word}."


def tally(word: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what says how many messages something was done to.

    :param word: what, such as "purged".
    """
    return lambda answer: f"{_were(answer['done'], word)}{_left(answer)}"


def _dst(verb: str) -> Callable[[Given], list[str]]:
    return lambda given: ["imqcmd", verb, "dst", "-t", given["type"][:1], "-n", given["name"]]


def option(given: Given, word: str, name: str) -> list[str]:
    """Return an option of a command, where it is given."""
    return [word, given[name]] if given.get(name) else []


def _use_dmq(given: Given) -> list[str]:
    return ["-o", "useDMQ=true"] if given.get("use_dmq") else []


def _with_properties(given: Given) -> dict[str, object]:
    properties = {name: value for name, value in given.items() if name not in _DESTINATION}
    return {**{name: given[name] for name in _DESTINATION}, "properties": properties}


def _limits(given: Given) -> list[str]:
    pairs = [f"{each.name}={given[each.name]}" for each in _LIMITS if given.get(each.name)]
    return [*_dst("update")(given), *(word for pair in pairs for word in ("-o", pair))]


SELECTOR: Final = Field(
    "selector",
    "Selector",
    help="Only messages whose properties it matches, such as color = 'red'. Empty: all.",
)
_USE_DMQ: Final = Field(
    "use_dmq", "Move the messages to the dead message queue", "flag", help="Else they are gone."
)
_LIMITS: Final = (
    Field("maxNumMsgs", "Most messages", help="-1 is no limit. Empty: as it is."),
    Field("maxTotalMsgBytes", "Most bytes", help="Such as 10m or 2g; -1 is no limit."),
    Field("maxBytesPerMsg", "Most bytes of a message"),
    Field(
        "limitBehavior",
        "At a limit",
        "choice",
        choices=("", "FLOW_CONTROL", "REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"),
    ),
)

_OF_DESTINATIONS: Final = (
    Action(
        "purge",
        "Purge",
        "Give up what waits in {type} {name}?",
        "POST",
        "/v1/destination/purge",
        lambda given: [
            *_dst("purge")(given),
            *option(given, "-selector", "selector"),
            *_use_dmq(given),
        ],
        _DESTINATION,
        (SELECTOR, _USE_DMQ),
        lambda answer: _were(answer["purged"], "purged"),
        danger=True,
        subject=subjects.destination,
    ),
    Action(
        "pause",
        "Pause",
        "Pause {type} {name}?",
        "POST",
        "/v1/destination/pause",
        lambda given: [*_dst("pause")(given), *option(given, "-pst", "pause")],
        _DESTINATION,
        (
            Field(
                "pause",
                "For",
                "choice",
                "CONSUMERS",
                ("CONSUMERS", "PRODUCERS", "ALL"),
                "CONSUMERS: nothing is delivered. PRODUCERS: nothing is accepted.",
            ),
        ),
        subject=subjects.destination,
    ),
    Action(
        "resume",
        "Resume",
        "Resume {type} {name}?",
        "POST",
        "/v1/destination/resume",
        _dst("resume"),
        _DESTINATION,
        subject=subjects.destination,
    ),
    Action(
        "limits",
        "Change limits",
        "Change the limits of {type} {name}? What is there stays, but where a limit removes the oldest.",
        "PUT",
        "/v1/destination",
        _limits,
        _DESTINATION,
        _LIMITS,
        body=_with_properties,
        done=lambda answer: " ".join(["The limits are changed.", *answer.get("notes", ())]),
        subject=subjects.destination,
    ),
    Action(
        "destroy",
        "Destroy",
        "Remove {type} {name}, with its messages? Its consumers end with an error.",
        "DELETE",
        "/v1/destination",
        lambda given: [*_dst("destroy")(given), *_use_dmq(given)],
        _DESTINATION,
        (_USE_DMQ,),
        lambda answer: "It is destroyed.",
        danger=True,
        back=lambda given: "destinations",
        subject=subjects.destination,
    ),
    Action(
        "create",
        "Create a destination",
        "Create a destination?",
        "POST",
        "/v1/destinations",
        _dst("create"),
        (),
        (
            Field("type", "Type", "choice", "queue", ("queue", "topic")),
            Field("name", "Name", required=True),
        ),
        lambda answer: f"{answer['type']} {answer['name']} is created.",
    ),
)

_BRIDGE_PATH: Final = "/v1/bridges/<path:name>/<any(start, stop, pause, resume):operation>"
_LINK_PATH: Final = "/v1/links/<path:name>/<any(start, stop, pause, resume):operation>"


def _bridge(verb: str, question: str, *, danger: bool = False) -> Action:
    return Action(
        f"{verb}-bridge",
        verb.capitalize(),
        question,
        "POST",
        _BRIDGE_PATH,
        lambda given: ["imqbridgemgr", verb, "bridge", "-bn", given["bridge"]],
        ("bridge",),
        parts={"name": "bridge"},
        operation={"operation": verb},
        done=lambda answer: f"It is {answer['bridges'][0]['state']}.",
        danger=danger,
        subject=subjects.bridge,
    )


def _link(verb: str, question: str, *, danger: bool = False) -> Action:
    return Action(
        f"{verb}-link",
        verb.capitalize(),
        question,
        "POST",
        _LINK_PATH,
        lambda given: ["imqbridgemgr", verb, "link", "-bn", given["bridge"], "-ln", given["link"]],
        _LINK,
        parts={"name": "bridge"},
        operation={"operation": verb},
        done=lambda answer: f"It is {answer['links'][0].state.value}.",
        danger=danger,
        subject=subjects.link,
    )


_OF_BRIDGES: Final = (
    _bridge("start", "Start bridge {bridge}, with its links?"),
    _bridge("stop", "Stop bridge {bridge}? What depends on it is disconnected.", danger=True),
    _bridge("pause", "Pause bridge {bridge}? It keeps what it has, and moves nothing."),
    _bridge("resume", "Resume bridge {bridge}?"),
    _link("start", "Start link {link} of bridge {bridge}?"),
    _link("stop", "Stop link {link} of bridge {bridge}? Messages stay at its source.", danger=True),
    _link("pause", "Pause link {link} of bridge {bridge}? Messages stay at its source."),
    _link("resume", "Resume link {link} of bridge {bridge}?"),
)
_OF_CONNECTIONS: Final = (
    Action(
        "destroy-connection",
        "Destroy",
        "End connection {id}? Its client gets an error. Its transactions roll back, and what it has "
        "not acknowledged is delivered again.",
        "DELETE",
        "/v1/connection",
        lambda given: ["imqcmd", "destroy", "cxn", "-n", given["id"]],
        ("id",),
        done=lambda answer: "It is ended.",
        danger=True,
        back=lambda given: "connections",
        subject=subjects.connection,
    ),
)

ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action for action in (*_OF_DESTINATIONS, *_OF_BRIDGES, *_OF_CONNECTIONS)
}
