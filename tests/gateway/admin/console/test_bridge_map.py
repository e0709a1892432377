"""Where the map of bridges puts brokers and links, and what it says of them."""

from __future__ import annotations

from itertools import pairwise

from bridge.config.model import Bridge, ConnectionFactory, Destination, Link, Source, Target
from bridge.link.status import BalanceTerms, Doing, LinkCounters, LinkState, LinkStatus
from gateway.admin.console.bridge_map import MOST_DRAWN, BridgeMap, bridge_map, joined
from gateway.messaging.destination import Kind

HERE = ConnectionFactory("here")
EAST = ConnectionFactory("east", "stomp://east:61613")
WEST = ConnectionFactory(
    "west",
    "cn=west",
    password="hush",
    properties={"java.naming.provider.url": "ldap://boss:hush@west/o=imq"},
)
IN = Destination("in", "shop.in", Kind.QUEUE)


def link(name: str, source: ConnectionFactory, target: ConnectionFactory) -> Link:
    return Link(name, Source(source, IN), Target(target))


def status(
    name: str, state: LinkState = LinkState.STARTED, taken: int = 0, out: int = 0
) -> LinkStatus:
    balance = BalanceTerms(taken, out)
    return LinkStatus(
        bridge="shop",
        name=name,
        state=state,
        enabled=True,
        transacted=False,
        quality_of_service="DUPLICATES_OK",
        source="",
        target="",
        since_ms=0,
        last_error="",
        last_error_ms=0,
        attempt=0,
        next_try_ms=0,
        in_flight=0,
        doing=Doing.NOTHING,
        doing_since_ms=0,
        last_transfer_ms=0,
        lag_ms=0,
        received_rate=0.0,
        sent_rate=0.0,
        counters=LinkCounters(),
        balance=balance,
        difference=balance.difference,
    )


def drawn(*links: tuple[Link, LinkStatus]) -> BridgeMap:
    config = Bridge("shop", tuple(each for each, _ in links))
    return bridge_map(joined(config, [each for _, each in links]))


def test_what_was_moved_is_what_the_durable_balance_has() -> None:
    one = link("l", HERE, EAST)
    [arrow] = drawn((one, status("l", taken=20, out=20))).arrows
    assert "20 moved" in arrow.whole
    assert "20 out" in arrow.whole


def test_links_between_any_brokers_have_arrows_that_end_at_their_columns() -> None:
    ends = {
        "out": (HERE, EAST),
        "back": (EAST, HERE),
        "round": (HERE, HERE),
        "past": (EAST, WEST),
        "far": (WEST, HERE),
    }
    found = drawn(*((link(name, *ends[name]), status(name)) for name in ends))
    columns = {column.place.name: column.x for column in found.columns}
    assert list(columns) == ["This broker", "east", "west"]
    for arrow, (source, target) in zip(found.arrows, ends.values(), strict=True):
        begins, leads = (
            columns["This broker" if each is HERE else each.ref_name] for each in (source, target)
        )
        assert arrow.way.startswith(f"M{begins} ")
        assert arrow.head.startswith(f"M{leads} ")
        assert arrow.x + arrow.width <= found.width
    # Each has a row of its own.
    assert all(above.y + 48 < below.y - 40 for above, below in pairwise(found.arrows))
    assert found.arrows[-1].y + 48 <= found.height


def test_one_address_is_one_broker_whatever_each_bridge_calls_it() -> None:
    same = ConnectionFactory("levant", "stomp://east:61613")
    found = drawn((link("a", EAST, HERE), status("a")), (link("b", same, HERE), status("b")))
    assert [column.place.name for column in found.columns] == ["This broker", "east"]


def test_an_address_shows_no_secret() -> None:
    [_, column] = drawn((link("a", HERE, WEST), status("a"))).columns
    assert column.place.address.startswith("cn=west ldap://")
    assert "hush" not in column.place.address


def test_a_balance_that_differs_is_an_alarm_with_all_its_terms() -> None:
    [arrow] = drawn((link("a", HERE, EAST), status("a", LinkState.FAILED, 7, 5))).arrows
    assert arrow.alarm
    assert arrow.tone == "bad"
    assert arrow.shown.beside == "difference 2, possibly twice 0"
    assert arrow.shown.balance == (
        "7 in = 5 out + 0 dead + 0 not transferred + 0 in doubt + 0 held"
    )
    # Those who hear it hear what is seen, and between which brokers it is.
    assert arrow.heard.endswith(
        f"{arrow.shown.balance} {arrow.shown.beside}. From this broker to east."
    )


def test_long_texts_are_short_in_the_picture_and_whole_beside_it() -> None:
    name = "l" * 200
    [arrow] = drawn((link(name, HERE, EAST), status(name, taken=10**15, out=10**15))).arrows
    assert len(arrow.shown.name) < 90
    assert arrow.shown.name.endswith("…")
    assert name in arrow.whole
    # Where all terms do not fit, those that are 0 are left out.
    assert "dead" not in arrow.shown.balance
    assert "0 dead" in arrow.whole


def test_very_many_links_are_in_the_list_only() -> None:
    names = [f"l{number}" for number in range(MOST_DRAWN + 5)]
    found = drawn(*((link(name, HERE, EAST), status(name)) for name in names))
    assert (len(found.arrows), found.left_out) == (MOST_DRAWN, 5)
