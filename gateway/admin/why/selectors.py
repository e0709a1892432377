"""Why a selector matches nothing: the nearest miss.

A selector is a row of conditions joined by AND. Each is asked by itself about a sample of the
messages. The nearest miss is the condition that alone keeps the most messages out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.admin.why.cause import quoted
from gateway.broker.timing.schedule import Steps
from gateway.messaging.message import Message
from gateway.messaging.selector.selector import Selector, parse
from gateway.messaging.selector.terms import Term, terms_of, value_of
from gateway.messaging.values import Value

#: Messages that are looked at for selectors.
SAMPLE: Final = 1000
#: Messages that are looked at in one step, at most, and microseconds that it may take, about.
_STEP: Final = 50
_STEP_COST: Final = 2000
#: Different values of a property that are counted.
_VALUES: Final = 20


@dataclass(slots=True)
class TermCount:
    """How one condition of a selector did.

    :param failed: messages of which it is not true.
    :param alone: those that every other condition is true of.
    :param absent: messages that lack its property.
    :param values: what the messages say instead, by how many of them.
    :param alike: names of properties that they have and that differ in the case of letters only.
    """

    term: Term
    failed: int = 0
    alone: int = 0
    absent: int = 0
    values: Counter[str] = field(default_factory=Counter)
    alike: Counter[str] = field(default_factory=Counter)

    @property
    def sentence(self) -> str:
        """What it lacks, as part of a sentence."""
        text = f"{self.term.text} is not true of {self.failed}"
        more = []
        for name in self.term.names[:1]:
            if self.absent:
                alike = self.alike.most_common(1)
                instead = f", which have {quoted(alike[0][0])}" if alike else ""
                more.append(f"{name} is absent from {self.absent}{instead}")
            more += [f"{name} is {value} on {count}" for value, count in self.values.most_common(2)]
        return f"{text} ({', '.join(more)})" if more else text


@dataclass(slots=True)
class Miss:
    """How a selector did with a sample.

    :param looked_at: messages of the sample.
    :param matched: those that it matches.
    """

    text: str
    looked_at: int = 0
    matched: int = 0
    terms: list[TermCount] = field(default_factory=list)

    @property
    def nearest(self) -> TermCount | None:
        """The condition that keeps the most messages out by itself."""
        failing = [each for each in self.terms if each.failed]
        return max(failing, key=lambda each: (each.alone, each.failed), default=None)

    @property
    def sentence(self) -> str:
        """The nearest miss, as the end of a sentence."""
        nearest = self.nearest
        if nearest is None:
            return ""
        alone = (
            f"; {nearest.alone} lack nothing else" if len(self.terms) > 1 and nearest.alone else ""
        )
        return f"the nearest miss: {nearest.sentence}{alone}"


def misses(text: str, sample: Sequence[Message], miss: Miss) -> Steps[None]:
    """Ask a selector's conditions about a sample, in short steps.

    :param miss: is given the counts.
    """
    miss.terms = [TermCount(term) for term in terms_of(text)]
    at_once = step_of([parse(text)])
    for start in range(0, len(sample), at_once):
        for message in sample[start : start + at_once]:
            _ask(miss, message)
        yield


def step_of(selectors: Sequence[Selector]) -> int:
    """Return how many messages these selectors may be asked about in one step."""
    cost = sum([selector.cost for selector in selectors])
    return max(1, min(_STEP, _STEP_COST // max(1, cost)))


def _ask(miss: Miss, message: Message) -> None:
    miss.looked_at += 1
    failed = [each for each in miss.terms if each.term.holds(message) is not True]
    if not failed:
        miss.matched += 1
        return
    for each in failed:
        each.failed += 1
        each.alone += len(failed) == 1
        for name in each.term.names[:1]:
            value = value_of(name, message)
            if value is None:
                each.absent += 1
                for other in _alike(name, message.headers.properties):
                    each.alike[other] += 1
            elif len(each.values) < _VALUES or _shown(value) in each.values:
                each.values[_shown(value)] += 1


def _alike(name: str, properties: Mapping[str, Value]) -> list[str]:
    folded = name.casefold()
    return [other for other in properties if other != name and other.casefold() == folded]


def _shown(value: Value) -> str:
    return quoted(value) if isinstance(value, str) else quoted(str(value)).strip("'")
