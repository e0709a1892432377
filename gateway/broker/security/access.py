"""The access control file, ``accesscontrol.properties``.

Owns the file's rules, who may connect and who may do what with which destination, and their
precedence, which are Open MQ's. Knows neither how users are authenticated
(:mod:`gateway.broker.security.users`) nor when the broker asks. That only its creator consumes from
a temporary destination is the broker's rule, not one of this file.

A rule is ``RESOURCE.NAME.OPERATION.ACCESS.PRINCIPALS=LIST``::

    connection.NORMAL.allow.user=*
    queue.orders.produce.deny.group=guests,trainees
    topic.news.*.consume.allow.user=alice
    queue.create.allow.user=*

For one question the rules that fit are asked from the most specific to the most general, and the
first that has an opinion decides:

1. rules for the destination by name, then for topics those whose name is a pattern that fits (more
   literal levels first), then those for ``*``;
2. within one of these: the user by name, the user's groups by name, ``user=*``, ``group=*`` (for
   users who have a group);
3. allow and deny for the same principal are a deny, and so are a group allowed and another denied;
4. what nothing allows is denied.

Of a user whom another broker knows, the name is what the client says. That broker may not tell upper
from lower case. So right behind the first step of 2, ``user=alice`` denies to ``ALICE``, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from unicodedata import normalize

from gateway.broker.properties.names import ADVISORY, is_wild, matcher
from gateway.broker.security.users import ADMIN_GROUP, ELSEWHERE, Principal
from gateway.instance import properties
from gateway.instance.layout import Layout, LineError, replace
from gateway.messaging.destination import Destination, Kind

VERSION: Final = "JMQFileAccessControlModel/100"

#: What a new instance gets: everyone connects and uses every destination, the group admin
#: administers.
DEFAULT_RULES: Final = f"""\
version={VERSION}

# Who may do what: RESOURCE.NAME.OPERATION.ACCESS.PRINCIPALS=LIST
#   RESOURCE    connection, queue, topic
#   NAME        NORMAL or ADMIN for connection; a destination's name, or * for all
#   OPERATION   produce, consume, browse; none for connection. queue.create and topic.create have no name
#   ACCESS      allow, deny
#   PRINCIPALS  user, group
#   LIST        names with commas between, or *
# A rule for a name wins over one for *, a user over a group, a name over *. Of two lines with the same left side the last counts.
# What nothing allows is denied. A running server reads the file again when it gets SIGHUP.

connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin

queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
queue.create.allow.user=*

topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.create.allow.user=*

# With these, only the group admin reads what is dead, whichever destination it was for, and nobody sends there:
#queue.mq.sys.dmq.browse.allow.group=admin
#queue.mq.sys.dmq.browse.deny.user=*
#queue.mq.sys.dmq.consume.allow.group=admin
#queue.mq.sys.dmq.consume.deny.user=*
#queue.mq.sys.dmq.produce.deny.user=*
"""

_SERVICES: Final = ("NORMAL", "ADMIN")
_ALL: Final = "*"
_NOBODY: Final[frozenset[str]] = frozenset()
_RESOURCES: Final = {Kind.QUEUE: "queue", Kind.TOPIC: "topic"}


class Operation(Enum):
    """What a user does with a destination; the values are the file's words."""

    PRODUCE = "produce"
    CONSUME = "consume"
    BROWSE = "browse"
    #: Have it created by using it.
    CREATE = "create"


class AccessError(LineError):
    """The access control file cannot be used."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is allowed or denied.

    :param rule: the left side of the rule that decides; "" where none does.
    :param names: that rule's.
    :param text: a sentence, where it is not a rule of the file that decides.
    """

    allowed: bool
    rule: str = ""
    names: tuple[str, ...] = ()
    text: str = ""


#: What decides where no rule of the file does.
_NO_RULE: Final = Reason(False, text="No rule allows it, and what nothing allows is denied.")
_TEMPORARY: Final = Reason(True, text="Only its creator consumes from a temporary destination.")
_ADVISORY: Final = Reason(
    False,
    text="Advisory topics are for consumers of the group admin, unless a rule names them.",
)


def _folded(name: str) -> str:
    """Return a name without case, widths of characters and blanks."""
    return " ".join(normalize("NFKC", name).casefold().split())


@dataclass(slots=True)
class _Rule:
    """All lines about one operation on one name."""

    allow_user: frozenset[str] = frozenset()
    deny_user: frozenset[str] = frozenset()
    allow_group: frozenset[str] = frozenset()
    deny_group: frozenset[str] = frozenset()

    def decide(self, principal: Principal) -> bool | None:
        """Return whether it is allowed; None if this rule has no opinion."""
        decided = self.reason(principal)
        return None if decided is None else decided[0]

    def _alike(self, principal: Principal) -> frozenset[str]:
        """Return the users that are denied it and may be this one.

        The broker that knows the user may take ``ALICE`` for ``alice``, as directories do.
        """
        if principal.repository != ELSEWHERE or not self.deny_user:
            return _NOBODY
        name = _folded(principal.name)
        return frozenset([each for each in self.deny_user if _folded(each) == name])

    def reason(self, principal: Principal) -> tuple[bool, str, frozenset[str]] | None:
        """Return what decides: verdict, side and names."""
        for names, kind, allowed, denied in (
            ({principal.name}, "user", self.allow_user, self.deny_user),
            (self._alike(principal), "user", _NOBODY, self.deny_user),
            (principal.groups, "group", self.allow_group, self.deny_group),
            ({_ALL}, "user", self.allow_user, self.deny_user),
            ({_ALL} if principal.groups else (), "group", self.allow_group, self.deny_group),
        ):
            if not denied.isdisjoint(names):
                return False, f"deny.{kind}", denied
            if not allowed.isdisjoint(names):
                return True, f"allow.{kind}", allowed
        return None


@dataclass(slots=True)
class _Rules:
    """The rules of one operation of one resource.

    They go by name, by pattern from specific to general, and for all.
    """

    named: dict[str, _Rule] = field(default_factory=dict)
    patterns: list[tuple[Callable[[str], object], _Rule]] = field(default_factory=list)

    def decide(self, principal: Principal, name: str) -> bool:
        found = [] if name == _ALL else [self.named.get(name)]
        found += [rule for fits, rule in self.patterns if fits(name)]
        verdicts = (rule.decide(principal) for rule in (*found, self.named.get(_ALL)) if rule)
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def decide_advisory(self, principal: Principal, name: str) -> bool | None:
        """Return what rules for advisory topics say; None for nothing."""
        found = [self.named.get(name)] + [
            rule
            for each, rule in self.named.items()
            if each.startswith(ADVISORY) and _pattern(each)(name) and each != name
        ]
        verdicts = (rule.decide(principal) for rule in found if rule)
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def reason(
        self, principal: Principal, name: str, form: str, *, advisory: bool
    ) -> Reason | None:
        """Return what decides, as :meth:`decide` does; None where no rule does.

        :param form: a rule's left side, with the rule's name and its end in braces.
        :param advisory: as :meth:`decide_advisory` does.
        """
        if advisory:
            found = [name] + [
                each
                for each in self.named
                if each.startswith(ADVISORY) and _pattern(each)(name) and each != name
            ]
        else:
            fitting = [rule for fits, rule in self.patterns if fits(name)]
            names = {id(rule): each for each, rule in self.named.items()}
            found = [] if name == _ALL else [name]
            found += [*(names[id(rule)] for rule in fitting), _ALL]
        for each in found:
            rule = self.named.get(each)
            decided = None if rule is None else rule.reason(principal)
            if decided is not None:
                allowed, side, listed = decided
                return Reason(allowed, form.format(name=each, side=side), tuple(sorted(listed)))
        return None

    def decide_every(self, principal: Principal, pattern: str) -> bool:
        """Whether all names that a pattern covers are allowed.

        As far as can be told: a rule whose own name is a pattern may cover some of them, unless it
        begins otherwise. And ``a.>`` covers ``a`` at some brokers.
        """
        covers = matcher(pattern, none_or_more=True)
        return (
            self.decide(principal, pattern)
            and all(
                rule.decide(principal) is not False
                for name, rule in self.named.items()
                if _is_pattern(name) and _may_meet(name, pattern)
            )
            and all(self.decide(principal, name) for name in self.named if covers(name))
        )

    def decide_any(self, principal: Principal, pattern: str, none_or_more: bool) -> bool:
        """Whether any name that a pattern covers is allowed.

        As far as the rules' own names tell.
        """
        covers = matcher(pattern, none_or_more)
        return self.decide(principal, pattern) or any(
            self.decide(principal, name) for name in self.named if covers(name)
        )


_Table = dict[tuple[str, str], _Rules]
_NOTHING: Final = _Rules()


class AccessRules:
    """The rules of one access control file.

    Before the first :meth:`load` nothing is allowed.

    :param path: the file, ``etc/accesscontrol.properties`` of an instance.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        #: Rises each time the rules have been read anew; an answer that is kept holds for one epoch.
        self.epoch: int = 0
        self._table: _Table = {}

    def load(self) -> None:
        """Read the file; its rules hold from now on.

        :raises AccessError: the file cannot be read, or a line of it is no rule. The rules are then
            what they were.
        """
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise AccessError(self.path, 0, f"cannot be read: {error.strerror or error}") from error
        self.use(data)

    #: The same again, for a file that changed.
    reload = load

    def use(self, data: bytes) -> None:
        """Have the rules be those of this text; the path is for errors only.

        :raises AccessError: a line of it is no rule. The rules are then what they were.
        """
        self._table = _parse(data, self.path)
        self.epoch += 1

    def may_connect(self, principal: Principal, service: str = "NORMAL") -> bool:
        """Whether the user may connect to a service of this type.

        :param service: ``NORMAL`` for clients, ``ADMIN`` for administration.
        """
        return self._table.get(("connection", ""), _NOTHING).decide(principal, service)

    def allows(
        self,
        principal: Principal,
        operation: Operation,
        destination: Destination,
        auto_created: bool = False,
    ) -> bool:
        """Whether the user may do that.

        Temporary destinations have no rules of their own name, and as in Open MQ only PRODUCE is
        asked of the file for them: a user who knows the name may send, where the rules for ``*``
        allow it.

        A topic subscription with wildcards is judged by its own text, as one more name; the broker
        asks again for each topic that the subscription turns out to cover, or a wildcard would
        reach around a rule.

        Advisory topics tell what others do. So what rules for ``*`` allow is not allowed there:
        administrators consume from them, others where a rule names them, and no user sends to them
        without such a rule.

        :param operation: CREATE has one rule for all queues and one for all topics, whatever their
            names.
        :param auto_created: the destination exists, or would come to exist, because someone uses
            it; then the user needs CREATE as well as ``operation``.
        """
        if destination.temporary and operation is not Operation.PRODUCE:
            return True
        resource = _RESOURCES[destination.kind]
        if operation is Operation.CREATE or (auto_created and not destination.temporary):
            if not self._table.get((resource, Operation.CREATE.value), _NOTHING).decide(
                principal, ""
            ):
                return False
            if operation is Operation.CREATE:
                return True
        return self._decide(principal, operation, destination)

    def _decide(self, principal: Principal, operation: Operation, destination: Destination) -> bool:
        rules = self._table.get((_RESOURCES[destination.kind], operation.value), _NOTHING)
        if destination.kind is Kind.TOPIC and destination.name.startswith(ADVISORY):
            verdict = rules.decide_advisory(principal, destination.name)
            if verdict is not None:
                return verdict
            if operation is not Operation.CONSUME or ADMIN_GROUP not in principal.groups:
                return False
        return rules.decide(principal, destination.name)

    def connecting(self, principal: Principal, service: str = "NORMAL") -> Reason:
        """Return why the user may connect or not, as :meth:`may_connect`."""
        rules = self._table.get(("connection", ""), _NOTHING)
        form = "connection.{name}.{side}"
        return rules.reason(principal, service, form, advisory=False) or _NO_RULE

    def reason(
        self, principal: Principal, operation: Operation, destination: Destination
    ) -> Reason:
        """Return why the user may do that or not, as :meth:`allows`."""
        if destination.temporary and operation is not Operation.PRODUCE:
            return _TEMPORARY
        resource = _RESOURCES[destination.kind]
        rules = self._table.get((resource, operation.value), _NOTHING)
        if operation is Operation.CREATE:
            form = f"{resource}.create.{{side}}"
            return rules.reason(principal, "", form, advisory=False) or _NO_RULE
        form, name = f"{resource}.{{name}}.{operation.value}.{{side}}", destination.name
        if resource == "topic" and name.startswith(ADVISORY):
            found = rules.reason(principal, name, form, advisory=True)
            if found is not None:
                return found
            if operation is not Operation.CONSUME or ADMIN_GROUP not in principal.groups:
                return _ADVISORY
        return rules.reason(principal, name, form, advisory=False) or _NO_RULE

    def allows_any(
        self,
        principal: Principal,
        operation: Operation,
        pattern: Destination,
        none_or_more: bool,
    ) -> bool:
        """Whether the user may do that with any destination that a pattern covers.

        Those that exist are asked about one by one, with :meth:`allows`.

        :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
        """
        rules = self._table.get((_RESOURCES[pattern.kind], operation.value), _NOTHING)
        return rules.decide_any(principal, pattern.name, none_or_more)

    def allows_elsewhere(
        self, principal: Principal, operation: Operation, destination: Destination
    ) -> bool:
        """Whether the user may do that with a destination of another broker.

        CREATE is not asked: that is the other broker's business. As what a subscription with
        wildcards covers is not known here, it must be allowed whatever that is.
        """
        if destination.temporary and operation is not Operation.PRODUCE:
            return True
        if destination.kind is Kind.TOPIC and is_wild(destination.name):
            rules = self._table.get((_RESOURCES[destination.kind], operation.value), _NOTHING)
            if not rules.decide_every(principal, destination.name):
                return False
            if not destination.name.startswith(ADVISORY):
                return True
        return self._decide(principal, operation, destination)


def read_lists(data: bytes, file: Path) -> dict[str, list[str]]:
    """Return the rules of a file: by their left sides the names, sorted.

    :raises AccessError: as :meth:`AccessRules.load`.
    """
    _parse(data, file)
    return {
        name: sorted(_names(entry.value))
        for name, entry in _latest(data, file).items()
        if name != "version"
    }


def make_first_rules(layout: Layout) -> None:
    """Make the access control file of an instance, if it has none.

    :raises OSError: it cannot be written.
    """
    if not layout.access_control.exists():
        replace(layout.access_control, DEFAULT_RULES.encode())


def check_rule(side: str, names: Iterable[str]) -> None:
    """Whether a rule can be in a file.

    :param side: its left side.
    :raises ValueError: it cannot.
    """
    if side in ("version", ""):
        raise ValueError(f"{side or 'an empty text'} is no access rule")
    _key(side)
    list_of(names)


def list_of(names: Iterable[str]) -> str:
    """Return the right side of a rule with these names.

    :raises ValueError: one of them would be another name in the file, or several.
    """
    listed = list(names)
    for name in listed:
        if _names(name) != {name}:
            raise ValueError(
                f"{name!r} is not one name: expected each name by itself, without commas and without blanks around it, or *"
            )
    return ",".join(listed)


def _latest(data: bytes, file: Path) -> dict[str, properties.Entry]:
    entries, malformed = properties.parse(data)
    if malformed:
        raise AccessError(file, malformed[0].line, f"expected {malformed[0].expected}")
    # Of lines with the same left side the last counts.
    return {entry.name: entry for entry in entries}


def _parse(data: bytes, file: Path) -> _Table:
    latest = _latest(data, file)
    version = latest.pop("version", None)
    if version is None:
        raise AccessError(file, 0, f"has no version; expected the line version={VERSION}")
    if version.value.strip() != VERSION:
        raise AccessError(
            file, version.line, f"version={version.value}: expected version={VERSION}"
        )
    table: _Table = {}
    for entry in latest.values():
        try:
            resource, name, operation, side = _key(entry.name)
            names = _names(entry.value)
        except ValueError as error:
            raise AccessError(file, entry.line, f"{entry.name}: {error}") from None
        rules = table.setdefault((resource, operation), _Rules())
        setattr(rules.named.setdefault(name, _Rule()), side, names)
    for (resource, operation), rules in table.items():
        if resource == "topic" and operation != Operation.CREATE.value:
            _compile_patterns(rules)
        elif operation == Operation.CREATE.value:
            rules.named[_ALL] = rules.named.pop("")
    return table


def _key(key: str) -> tuple[str, str, str, str]:
    """Return resource, name, operation and side of a rule's left side.

    Names may have dots: the words are counted from both ends.
    """
    words = key.split(".")
    _word(words[0], ("connection", "queue", "topic"), "resource")
    if len(words) < 4:
        raise ValueError(
            "expected RESOURCE.NAME.OPERATION.ACCESS.PRINCIPALS, as in queue.*.produce.allow.user"
        )
    resource, middle, access, principals = words[0], words[1:-2], words[-2], words[-1]
    _word(access, ("allow", "deny"), "access")
    _word(principals, ("user", "group"), "kind of principals")
    side = f"{access}_{principals}"
    if resource == "connection":
        service = ".".join(middle)
        _word(service, (*_SERVICES, _ALL), "service type")
        return resource, service, "", side
    if middle == [Operation.CREATE.value]:
        return resource, "", Operation.CREATE.value, side
    operation = middle[-1]
    if operation == Operation.CREATE.value:
        raise ValueError(f"create has no name; expected {resource}.create.{access}.{principals}")
    _word(operation, ("produce", "consume", "browse"), "operation")
    name = ".".join(middle[:-1])
    if not name:
        raise ValueError(
            f"has no name; expected {resource}.NAME.{operation}.{access}.{principals}, where NAME may be *"
        )
    if resource == "queue" and name != _ALL and _ALL in name.split("."):
        raise ValueError(
            "a queue's rule has a whole name, or * for all queues; patterns are for topics"
        )
    return resource, name, operation, side


def _word(word: str, known: tuple[str, ...], what: str) -> None:
    if word not in known:
        near = difflib.get_close_matches(word, known, n=1)
        nearest = f"; the nearest is {near[0]}" if near else ""
        raise ValueError(
            f"{what} {word!r}: expected {', '.join(known[:-1])} or {known[-1]}{nearest}"
        )


def _names(value: str) -> frozenset[str]:
    """Return the names of a list.

    Blanks around a name are no part of it, and as in the original nothing between two commas is no
    name.
    """
    names = [name for name in map(str.strip, value.split(",")) if name]
    for name in names:
        if _ALL in name and name != _ALL:
            raise ValueError(f"{name!r}: * stands for everyone and is no part of a name")
    return frozenset(names)


def _compile_patterns(rules: _Rules) -> None:
    """Find the names that are patterns.

    ``*`` is one level, ``**`` one or more, ``>`` at the end the name before it and all below.
    """
    ranked: list[tuple[int, str, _Rule]] = []
    for name, rule in rules.named.items():
        if _is_pattern(name):
            literal = sum(level.rstrip(">") not in ("", "*", "**") for level in name.split("."))
            ranked.append((-literal, name, rule))
    # The name decides among equals, so that the order of lines never does.
    ranked.sort(key=lambda entry: entry[:2])
    rules.patterns = [(_pattern(name), rule) for _, name, rule in ranked]


def _is_pattern(name: str) -> bool:
    """Whether a topic's rule is for several names and not for all."""
    return name != _ALL and (name.endswith(">") or not {"*", "**"}.isdisjoint(name.split(".")))


def _may_meet(rule: str, pattern: str) -> bool:
    """Whether a rule's pattern and that of a subscription may cover one name.

    They do not where their first levels, as far as both are names, differ.
    """
    levels = rule.rstrip(">").rstrip(".").split(".") if rule.endswith(">") else rule.split(".")
    for one, other in zip(levels, pattern.split("."), strict=False):
        if one in ("", "*", "**") or other in ("*", ">"):
            return True
        if one != other:
            return False
    return True


def _pattern(name: str) -> Callable[[str], object]:
    """What tells whether a topic's name fits the pattern."""
    stem = name.rstrip(">").rstrip(".") if name.endswith(">") else name
    levels = (
        [{"*": r"[^.]+", "**": r".+"}.get(level, re.escape(level)) for level in stem.split(".")]
        if stem
        else []
    )
    text = r"\.".join(levels)
    if name.endswith(">"):
        text += r"(\..*)?" if levels else ".*"
    return re.compile(text, re.DOTALL).fullmatch
