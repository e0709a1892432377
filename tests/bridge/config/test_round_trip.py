"""Any model, written as XML, reads back as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from bridge.config.document import declarations, dtd, parse
from bridge.config.model import (
    BRIDGE_NAME_PROPERTY,
    BUILT_IN_DMQ,
    Bridge,
    ConnectionFactory,
    Destination,
    Dmq,
    Link,
    QualityOfService,
    Rule,
    SetHeader,
    Source,
    Target,
)
from bridge.config.reader import RESERVED_NAMES, read
from gateway.messaging.destination import Kind
from tests.bridge.config.documents import ORIGIN, written

LARGEST = 2**31 - 1
# All that XML 1.0 can hold in an attribute.
CHARACTERS = st.characters(
    exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff", include_characters="\t\n\r"
)
RESERVED = {name.lower() for name in (*RESERVED_NAMES, BRIDGE_NAME_PROPERTY)}
names = (
    st.text(CHARACTERS, min_size=1, max_size=12)
    .filter(
        lambda text: text.isprintable() and text == text.strip() and text.lower() not in RESERVED
    )
    .filter(lambda text: not {"", ".", ".."} & set(text.split("/")))
)
texts = st.text(CHARACTERS, min_size=1, max_size=20).filter(
    lambda text: bool(text.strip()) and not text.startswith("${passfile")
)
optional = st.none() | texts
# In element content a carriage return stays only as a reference, which lxml writes; blanks around a
# description do not count.
descriptions = st.text(CHARACTERS, max_size=20).map(str.strip)
seconds = st.integers(0, LARGEST)
counts = st.integers(1, LARGEST)
retries = st.integers(-1, LARGEST)


def properties() -> st.SearchStrategy[Mapping[str, str]]:
    keys = texts.filter(lambda text: text.lower() != BRIDGE_NAME_PROPERTY.lower())
    return st.dictionaries(keys, texts | st.just(""), max_size=3)


@st.composite
def connection_factories(draw: st.DrawFn, ref_name: str) -> ConnectionFactory:
    username = draw(optional)
    return ConnectionFactory(
        ref_name,
        lookup_name=draw(optional),
        multi_rm=draw(st.booleans()),
        connect_attempts=draw(retries),
        connect_attempt_interval_s=draw(seconds),
        idle_timeout_s=draw(seconds),
        username=username,
        password=None if username is None else draw(texts | st.just("")),
        properties=draw(properties()),
        description=draw(descriptions),
    )


@st.composite
def destinations(draw: st.DrawFn, ref_name: str) -> Destination:
    looked_up = draw(st.booleans())
    return Destination(
        ref_name,
        name=None if looked_up else draw(texts),
        kind=None if looked_up else draw(st.sampled_from(Kind)),
        lookup_name=draw(texts) if looked_up else None,
        properties=draw(properties()),
        description=draw(descriptions),
    )


def dmqs(name: str, ends: Mapping[str, Any]) -> st.SearchStrategy[Dmq]:
    free: dict[str, Any] = (
        {"enabled": st.booleans(), "stay_connected": st.booleans()} if ends else {}
    )
    return st.builds(
        Dmq,
        name=st.just(name),
        **ends,
        **free,
        clientid=optional,
        time_to_live_ms=st.integers(0, 10**17),
        send_attempts=counts,
        send_attempt_interval_s=seconds,
        message_transformer_class=optional,
        properties=properties(),
        description=descriptions,
    )


@st.composite
def rules(draw: st.DrawFn, places: st.SearchStrategy[Destination]) -> Rule:
    when = draw(st.sampled_from([None, "a = 'b'", "JMSPriority > 4 AND c IS NULL"]))
    if draw(st.booleans()):
        return Rule(when, drop=True, last=draw(st.booleans()), description=draw(descriptions))
    headers = names.filter(lambda name: not name.startswith("JMS"))
    types = st.sampled_from(
        [("string", " x "), ("int", "-7"), ("boolean", "true"), ("double", "1e3")]
    )
    sets = st.one_of(
        st.builds(lambda name, text: SetHeader(name, text), headers, texts),
        st.builds(lambda made: SetHeader("count", made[1], made[0]), types),
        st.builds(lambda name, source: SetHeader(name, source=source), headers, headers),
        st.just(SetHeader("JMSPriority", "9")),
    )
    return Rule(
        when,
        tuple(draw(st.lists(headers | st.just("x-*"), max_size=2))),
        tuple(draw(st.lists(st.tuples(headers, headers), max_size=2))),
        tuple(draw(st.lists(sets, min_size=1, max_size=2))),
        destination=draw(st.none() | places),
        last=draw(st.booleans()) and when is not None,
        description=draw(descriptions),
    )


@st.composite
def bridges(draw: st.DrawFn) -> Bridge:
    factories = [
        draw(connection_factories(name))
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    ]
    places = [
        draw(destinations(name))
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    ]
    one_factory, one_place = st.sampled_from(factories), st.sampled_from(places)
    links = []
    for name in draw(st.lists(names, max_size=3, unique=True)):
        clientid = draw(optional)
        source = Source(
            draw(one_factory),
            draw(one_place),
            durable_sub=None if clientid is None else draw(optional),
            clientid=clientid,
            description=draw(descriptions),
        )
        # The selectors of other providers are theirs, and are kept as they are.
        if not source.connection_factory.embedded:
            source = replace(source, selector=draw(st.none() | texts.map(str.strip)))
        links.append(
            Link(
                name,
                source,
                Target(
                    draw(one_factory),
                    draw(st.none() | one_place),
                    stay_connected=draw(st.booleans()),
                    clientid=draw(optional),
                    retain_replyto=draw(st.booleans()),
                    message_transformer_class=draw(optional),
                    consume_no_transfer_on_transform_error=draw(st.booleans()),
                    rules=tuple(draw(st.lists(rules(one_place), max_size=2))),
                    properties=draw(properties()),
                    description=draw(descriptions),
                ),
                enabled=draw(st.booleans()),
                quality_of_service=draw(st.sampled_from(QualityOfService)),
                max_batch_size=draw(st.none() | counts),
                max_batch_time_ms=draw(st.just(-1) | counts),
                failure_retry_interval_ms=draw(st.none() | counts),
                max_retries=draw(st.none() | retries),
                add_message_id_in_header=draw(st.booleans()),
                loop_guard=draw(st.booleans()),
                max_messages_per_second=draw(st.none() | st.integers(1, 2**31 - 1)),
                max_bytes_per_second=draw(st.none() | st.integers(1, 2**40)),
                description=draw(descriptions),
            )
        )
    ends = {"connection_factory": one_factory, "destination": one_place}
    return Bridge(
        name=draw(names),
        links=tuple(links),
        built_in_dmq=draw(dmqs(BUILT_IN_DMQ.name, {})),
        dmqs=tuple(
            draw(dmqs(name, ends)) for name in draw(st.lists(names, max_size=2, unique=True))
        ),
        connection_factories=tuple(factories),
        destinations=tuple(places),
        message_transfer_tag_bridge_name=draw(st.booleans()),
        log_message_transfer=draw(st.booleans()),
    )


def described(bridge: Bridge) -> list[str]:
    """Every description, which makes no difference when bridges are compared."""
    links = [
        text
        for link in bridge.links
        for text in (link.description, link.source.description, link.target.description)
    ]
    others: list[Dmq | ConnectionFactory | Destination] = [bridge.built_in_dmq, *bridge.dmqs]
    others += [*bridge.connection_factories, *bridge.destinations]
    return [*links, *(one.description for one in others)]


@given(bridges())
def test_what_is_written_reads_back(model: Bridge) -> None:
    data = written(model)
    found, _ = read(data, ORIGIN, model.name)
    assert found == model
    assert described(found) == described(model)
    assert written(found) == data
    assert hash(found) == hash(model)


TAGS = [*declarations(), "surprise"]
ATTRIBUTES = [
    *sorted({name for declared in declarations().values() for name in declared.attributes}),
    "surprise",
]


def elements(depth: int = 3) -> st.SearchStrategy[str]:
    """Any elements in each other, most of them not as the DTD wants them."""
    attributes = st.dictionaries(
        st.sampled_from(ATTRIBUTES), st.sampled_from(["true", "false", "topic", "x"]), max_size=4
    )
    inner = st.just("") | st.sampled_from([" ", "text", "<!-- note -->"])
    if depth:
        inner |= st.lists(elements(depth - 1), max_size=4).map("".join)
    return st.builds(_element, st.sampled_from(TAGS), attributes, inner)


def _element(tag: str, attributes: Mapping[str, str], inner: str) -> str:
    given = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<{tag} {given}>{inner}</{tag}>"


@given(
    elements(),
    st.dictionaries(
        st.sampled_from(["name", "log-message-transfer", "surprise"]), st.just("true"), max_size=3
    ),
)
def test_what_is_said_is_what_the_dtd_says(inner: str, attributes: Mapping[str, str]) -> None:
    """Our own sentences find a document bad exactly where the parser's validation does."""
    text = _element("jmsbridge", attributes, inner)
    root, problems = parse(text.encode(), ORIGIN)
    assert root is not None
    assert (problems == []) == dtd().validate(etree.fromstring(text))
    assert not any("conforms to the DTD" in problem.expected for problem in problems)
