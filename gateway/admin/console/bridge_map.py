"""The map of bridges: brokers are columns, and links are arrows.

Owns where everything is in the picture, and which texts say the same. An arrow has a row of its
own, so that no text is on another, whichever brokers a link joins. One that takes messages from a
broker and puts them there again is an arc beside that broker's column.

The units are those of the picture, which are pixels unless the browser makes it smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from bridge.config import model
from bridge.connections.administered import masked
from bridge.link.status import BalanceTerms, LinkState, LinkStatus
from gateway.admin.console.view import number, visible

#: Links that are drawn; the list beside the picture has all.
MOST_DRAWN: Final = 60
#: What JNDI calls a broker's address.
_PROVIDER_URL: Final = "java.naming.provider.url"
#: States in which messages are moved, and those in which somebody must look.
_GOOD: Final = (LinkState.STARTED,)
_BAD: Final = (LinkState.FAILED, LinkState.RETRYING, LinkState.STALLED)

#: From one column to the next, and what is beside the first and the last one.
_PITCH: Final = 540
_MARGIN: Final = 110
#: Of the box of a broker.
_BOX_WIDTH: Final = 200
_BOX_HEIGHT: Final = 50
#: From one row to the next, and the first one's place.
_ROW: Final = 100
_FIRST: Final = _BOX_HEIGHT + 50
#: How far an arc is from its column.
_ARC: Final = 40
#: What is left free between a column and a text.
_GAP: Final = 16
#: The width of a character, by which a text is shortened before it is cut off.
_CHARACTER: Final = 6.4

#: The terms of a balance: they are what was taken.
_TERMS: Final = (
    ("out", "out"),
    ("dead", "dead"),
    ("not transferred", "not_transferred"),
    ("in doubt", "in_doubt"),
    ("held", "held"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A broker, or another provider, at one end of links.

    :param name: what an operator calls it.
    :param address: where it is; "" for the broker of this instance.
    """

    name: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A place in the picture. :param x: of its middle."""

    place: Place
    x: int


@dataclass(frozen=True, slots=True)
class Shown:
    """The texts at an arrow, each as long as there is room.

    :param balance: what was taken, and what became of it, and
    :param beside: what stands beside that.
    """

    name: str
    state: str
    ends: str
    rate: str
    balance: str
    beside: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """A link in the picture.

    :param tone: ``good``, ``odd`` or ``bad``; each has its colour, its mark and its line.
    :param heard: what those hear who do not see it, and
    :param whole: all of it, where the room is short.
    :param alarm: whether its balance differs.
    :param way: the line, and
    :param head: its end, as paths.
    :param x: where the texts begin,
    :param y: and the line.
    :param width: of the texts.
    """

    bridge: str
    link: str
    tone: str
    shown: Shown
    heard: str
    whole: str
    alarm: bool
    way: str
    head: str
    x: int
    y: int
    width: int


@dataclass(frozen=True, slots=True)
class BridgeMap:
    """The picture. :param left_out: links that it does not show."""

    columns: Sequence[Column]
    arrows: Sequence[Arrow]
    width: int
    height: int
    left_out: int

    @property
    def box(self) -> tuple[int, int]:
        """The width and height of the box of a broker."""
        return _BOX_WIDTH, _BOX_HEIGHT


@dataclass(frozen=True, slots=True)
class Joined:
    """A link, and the places that it joins.

    :param taken_from: its destination at the source, and
    :param put_to: at the target.
    """

    status: LinkStatus
    source: Place
    target: Place
    taken_from: str
    put_to: str


def joined(config: model.Bridge, statuses: Iterable[LinkStatus]) -> list[Joined]:
    """Return the links of a bridge with their places.

    :param config: that is in force.
    """
    by_name = {link.name: link for link in config.links}
    return [_joined(by_name[status.name], status) for status in statuses if status.name in by_name]


def _joined(link: model.Link, status: LinkStatus) -> Joined:
    source, target = link.source, link.target
    # Without one, each message goes to where it is from.
    put_to = target.destination or source.destination
    return Joined(
        status,
        _place(source.connection_factory),
        _place(target.connection_factory),
        visible(source.destination.shown),
        visible(put_to.shown),
    )


def _place(factory: model.ConnectionFactory) -> Place:
    if factory.embedded:
        return Place("This broker")
    address = " ".join(
        filter(
            None, (factory.lookup_name or factory.provider, factory.properties.get(_PROVIDER_URL))
        )
    )
    return Place(factory.ref_name, masked(address, factory))


def bridge_map(links: Sequence[Joined]) -> BridgeMap:
    """Draw links; the broker of this instance is the first column."""
    drawn = links[:MOST_DRAWN]
    places: dict[str, Place] = {}
    for link in drawn:
        for place in (link.source, link.target):
            # One address may have a name in each bridge.
            places.setdefault(place.address, place)
    ordered = sorted(places.values(), key=lambda place: bool(place.address))
    columns = [Column(place, _MARGIN + at * _PITCH) for at, place in enumerate(ordered)]
    middles = {column.place.address: column.x for column in columns}
    arrows = [
        _arrow(link, middles[link.source.address], middles[link.target.address], at)
        for at, link in enumerate(drawn)
    ]
    right = max([_MARGIN + column.x for column in columns], default=0)
    for arrow in arrows:
        right = max(right, arrow.x + arrow.width)
    return BridgeMap(
        columns,
        arrows,
        right,
        _FIRST + len(arrows) * _ROW - _BOX_HEIGHT // 2,
        len(links) - len(drawn),
    )


def _arrow(link: Joined, begins: int, ends: int, row: int) -> Arrow:
    status, y = link.status, _FIRST + row * _ROW
    if begins == ends:
        # Out of the column, and back into it a little below.
        above, below, turn = y - 10, y + 10, begins + _ARC
        way = f"M{begins} {above}H{turn}a10 10 0 0 1 0 20H{begins + 9}"
        head = f"M{begins} {below}l10 -5v10z"
        x, width = turn + 10 + _GAP, _PITCH - _ARC - 10 - 2 * _GAP
    else:
        step = 1 if begins < ends else -1
        way = f"M{begins} {y}H{ends - 9 * step}"
        head = f"M{ends} {y}l{-10 * step} -5v10z"
        x, width = min(begins, ends) + _GAP, _PITCH - 2 * _GAP
    terms, beside = balance_of(status.balance, status.difference)
    most = int(width / _CHARACTER)
    rate = (
        f"{status.sent_rate:.1f} messages a second, {number(status.balance.out)} moved"
        f"{f', {number(status.waiting)} wait' if status.waiting >= 0 else ''}"
    )
    state = status.state.value
    joins = f"{link.taken_from} → {link.put_to}"
    shown = Shown(
        # The state's word is behind it.
        name=_short(f"{status.bridge}: {status.name}", most - len(state) - 8),
        state=state,
        ends=_short(joins, most),
        rate=_short(rate, most),
        balance=_short(terms if len(terms) <= most else _without_zeros(status.balance), most),
        beside=_short(beside, most),
    )
    between = f"From {_named(link.source)} to {_named(link.target)}"
    return Arrow(
        status.bridge,
        status.name,
        tone(status.state),
        shown,
        # What is heard has what is seen.
        f"{' '.join(astuple(shown))}. {between}.",
        (
            f"Link {visible(status.name)} of bridge {visible(status.bridge)}: {state}. {between}: "
            f"{joins}. {rate}. {terms}; {beside}."
        ),
        bool(status.difference),
        way,
        head,
        x,
        y,
        width,
    )


def tone(state: LinkState) -> str:
    """Return how a state looks: ``good``, ``odd`` or ``bad``."""
    return "good" if state in _GOOD else "bad" if state in _BAD else "odd"


def balance_of(terms: BalanceTerms, difference: int) -> tuple[str, str]:
    """Say what was taken and what became of it, and what stands beside that."""
    parts = " + ".join(f"{number(getattr(terms, name))} {word}" for word, name in _TERMS)
    return (
        f"{number(terms.taken)} in = {parts}",
        f"difference {number(difference)}, possibly twice {number(terms.possibly_twice)}",
    )


def _without_zeros(terms: BalanceTerms) -> str:
    parts = [
        f"{number(getattr(terms, name))} {word}" for word, name in _TERMS if getattr(terms, name)
    ]
    return f"{number(terms.taken)} in = {' + '.join(parts) or 0}"


def _named(place: Place) -> str:
    return visible(place.name) if place.address else "this broker"


def _short(text: str, most: int) -> str:
    text = visible(text)
    return text if len(text) <= most else f"{text[: max(1, most - 1)]}…"
