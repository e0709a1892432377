"""What the elements mean, and the rules that a DTD cannot say: every attribute, and every
sentence.
"""

from __future__ import annotations

import time

import pytest

from bridge.config.model import (
    BUILT_IN_DMQ,
    ConnectionFactory,
    Destination,
    Dmq,
    QualityOfService,
    Source,
    Target,
)
from bridge.config.problems import ConfigurationError, Severity
from bridge.config.reader import read
from gateway.messaging.destination import Kind
from tests.bridge.config.documents import (
    DESTINATIONS,
    FACTORIES,
    ORIGIN,
    bridge,
    document,
    link,
    problems,
    told,
)

HERE = ConnectionFactory("here")
THERE = ConnectionFactory("there", lookup_name="ConnectionFactory")
IN = Destination("in", "orders", Kind.QUEUE)
OUT = Destination("out", "accepted", Kind.QUEUE)
NEWS = Destination("news", "news", Kind.TOPIC)


NAMED = '<source connection-factory-ref="here" destination-ref="in" clientid="c"/>'


def source(attributes: str, place: str = "in", factory: str = "here") -> str:
    return document(
        link(
            source=f'<source connection-factory-ref="{factory}" destination-ref="{place}" {attributes}/>'
        )
    )


def target(attributes: str = "", inside: str = "", place: str = "out") -> str:
    return document(
        link(
            target=f'<target connection-factory-ref="there" destination-ref="{place}" {attributes}>{inside}</target>'
        )
    )


def dmq(attributes: str, inside: str = "") -> str:
    return document(
        dmqs=f'<dmq name="dead" connection-factory-ref="there" destination-ref="out" {attributes}>{inside}</dmq>'
    )


def factory(attributes: str, inside: str = "") -> str:
    return document(
        factories=f'<connection-factory ref-name="one" {attributes}>{inside}</connection-factory>'
    )


def test_every_attribute_of_the_bridge() -> None:
    found = bridge(
        '<jmsbridge name="mq" message-transfer-tag-bridge-name="true" log-message-transfer="false"/>'
    )
    assert (found.name, found.message_transfer_tag_bridge_name, found.log_message_transfer) == (
        "mq",
        True,
        False,
    )


def test_every_attribute_of_a_link() -> None:
    text = document(
        link(
            'enabled="false" quality-of-service="AT_MOST_ONCE" max-batch-size="50" max-batch-time="250" failure-retry-interval="1500" '
            'max-retries="7" add-message-id-in-header="true" loop-guard="true"'
        )
    )
    [found] = bridge(text).links
    assert (found.name, found.enabled, found.line) == ("orders", False, 2)
    assert found.quality_of_service is QualityOfService.AT_MOST_ONCE
    assert (found.max_batch_size, found.max_batch_time_ms) == (50, 250)
    assert (found.failure_retry_interval_ms, found.max_retries) == (1500, 7)
    assert (found.add_message_id_in_header, found.loop_guard) == (True, True)
    assert (found.source, found.target) == (Source(HERE, IN), Target(THERE, OUT))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            source('selector="colour = \'blue\'" durable-sub="news1" clientid="c1"', "news"),
            Source(HERE, NEWS, selector="colour = 'blue'", durable_sub="news1", clientid="c1"),
            id="source",
        ),
        pytest.param(
            target(
                'stay-connected="false" clientid="c1" retain-replyto="true" message-transformer-class="a.B" '
                'consume-no-transfer-on-transform-error="true"',
                '<property name="x" value=" y "/>',
            ),
            Target(THERE, OUT, False, "c1", True, "a.B", True, properties={"x": " y "}),
            id="target",
        ),
        pytest.param(
            dmq(
                'enabled="false" stay-connected="false" clientid="c1" time-to-live-in-millis="60000" send-attempts="1" '
                'send-attempt-interval-in-seconds="0" message-transformer-class="a.B"',
                '<property name="x" value="y"/>',
            ),
            Dmq("dead", THERE, OUT, False, False, "c1", 60000, 1, 0, "a.B", {"x": "y"}),
            id="dmq",
        ),
        pytest.param(
            factory(
                'lookup-name="cf" multi-rm="true" connect-attempts="0" connect-attempt-interval-in-seconds="9" idle-timeout-in-seconds="0" '
                'username="u" password=" p "',
                '<description> two\n words </description><property name="x" value="y"/>',
            ),
            ConnectionFactory("one", "cf", True, 0, 9, 0, "u", " p ", {"x": "y"}),
            id="connection-factory",
        ),
    ],
)
def test_every_attribute_of(text: str, expected: Source | Target | Dmq | ConnectionFactory) -> None:
    found = bridge(text)
    ends = [end for link in found.links for end in (link.source, link.target)]
    assert expected in (*ends, *found.dmqs, *found.connection_factories)


def test_a_description_is_kept_without_blanks_around_it() -> None:
    text = factory("", "<description> two\n words </description>")
    assert bridge(text).connection_factories[0].description == "two\n words"


def test_every_attribute_of_a_destination() -> None:
    text = document(
        destinations='<destination ref-name="a" name="n" type="topic"/>'
        '<destination ref-name="b" lookup-name="jms/b" name="ignored" type="topic"><property name="x" value="y"/></destination>'
    )
    assert bridge(text).destinations == (
        Destination("a", "n", Kind.TOPIC),
        Destination("b", lookup_name="jms/b", properties={"x": "y"}),
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", QualityOfService.ONCE_AND_ONLY_ONCE),
        ('transacted="true"', QualityOfService.ONCE_AND_ONLY_ONCE),
        ('transacted="false"', QualityOfService.DUPLICATES_OK),
        ('quality-of-service="AT_MOST_ONCE"', QualityOfService.AT_MOST_ONCE),
        ('quality-of-service="DUPLICATES_OK"', QualityOfService.DUPLICATES_OK),
        ('quality-of-service="ONCE_AND_ONLY_ONCE"', QualityOfService.ONCE_AND_ONLY_ONCE),
        ('transacted="false" quality-of-service="AT_MOST_ONCE"', QualityOfService.AT_MOST_ONCE),
        ('transacted="false" quality-of-service="DUPLICATES_OK"', QualityOfService.DUPLICATES_OK),
        (
            'transacted="true" quality-of-service="ONCE_AND_ONLY_ONCE"',
            QualityOfService.ONCE_AND_ONLY_ONCE,
        ),
    ],
)
def test_quality_of_service(attributes: str, expected: QualityOfService) -> None:
    assert bridge(document(link(attributes))).links[0].quality_of_service is expected


@pytest.mark.parametrize(
    ("transacted", "quality", "expected"),
    [
        (
            "true",
            "AT_MOST_ONCE",
            'ONCE_AND_ONLY_ONCE, which transacted="true" stands for, or no attribute transacted',
        ),
        (
            "true",
            "DUPLICATES_OK",
            'ONCE_AND_ONLY_ONCE, which transacted="true" stands for, or no attribute transacted',
        ),
        (
            "false",
            "ONCE_AND_ONLY_ONCE",
            'AT_MOST_ONCE or DUPLICATES_OK, which transacted="false" stands for, or no attribute transacted',
        ),
    ],
)
def test_quality_of_service_against_transacted(
    transacted: str, quality: str, expected: str
) -> None:
    text = document(link(f'transacted="{transacted}" quality-of-service="{quality}"'))
    assert told(text) == [
        f'link "orders", attribute quality-of-service="{quality}": expected {expected}'
    ]


def test_a_batch_time_without_a_batch_size_is_warned_of() -> None:
    text = 'link "orders", attribute max-batch-time="50": expected max-batch-size, too: without it no batch waits'
    assert told(document(link('max-batch-time="50"'))) == [text]


@pytest.mark.parametrize(
    ("quality", "size"), [("AT_MOST_ONCE", 1), ("DUPLICATES_OK", 100), ("ONCE_AND_ONLY_ONCE", 100)]
)
def test_a_link_that_says_nothing_of_batches_takes_what_has_come(quality: str, size: int) -> None:
    found = bridge(document(link(f'quality-of-service="{quality}"'))).links[0]
    assert (found.batch_size, found.batch_time_ms) == (size, 0)


LARGEST = 2147483647


@pytest.mark.parametrize(
    ("text", "element", "attribute", "bad", "expected", "good"),
    [
        (
            document(link("{}")),
            'link "orders"',
            "max-batch-size",
            "0",
            f"a whole number from 1 to {LARGEST}",
            "1",
        ),
        (
            document(link("{}")),
            'link "orders"',
            "max-batch-size",
            "-1",
            f"a whole number from 1 to {LARGEST}",
            f"{LARGEST}",
        ),
        (
            document(link("{}")),
            'link "orders"',
            "max-batch-size",
            "many",
            f"a whole number from 1 to {LARGEST}",
            " 7 ",
        ),
        (
            document(link('max-batch-size="9" {}')),
            'link "orders"',
            "max-batch-time",
            "0",
            f"-1, or a whole number of milliseconds from 1 to {LARGEST}",
            "-1",
        ),
        (
            document(link('max-batch-size="9" {}')),
            'link "orders"',
            "max-batch-time",
            "-2",
            f"-1, or a whole number of milliseconds from 1 to {LARGEST}",
            "1",
        ),
        (
            document(link("{}")),
            'link "orders"',
            "failure-retry-interval",
            "0",
            f"a whole number of milliseconds from 1 to {LARGEST}",
            "1",
        ),
        (
            document(link("{}")),
            'link "orders"',
            "max-retries",
            "-2",
            f"a whole number from -1 to {LARGEST}",
            "-1",
        ),
        (dmq("{}"), 'dmq "dead"', "send-attempts", "0", f"a whole number from 1 to {LARGEST}", "1"),
        (
            dmq("{}"),
            'dmq "dead"',
            "time-to-live-in-millis",
            "-1",
            "a whole number of milliseconds of at least 0",
            "9999999999999",
        ),
        (
            dmq("{}"),
            'dmq "dead"',
            "send-attempt-interval-in-seconds",
            "1.5",
            f"a whole number of seconds from 0 to {LARGEST}",
            "0",
        ),
        (
            factory("{}"),
            'connection-factory "one"',
            "connect-attempts",
            "-2",
            f"a whole number from -1 to {LARGEST}",
            "-1",
        ),
        (
            factory("{}"),
            'connection-factory "one"',
            "connect-attempt-interval-in-seconds",
            "-1",
            f"a whole number of seconds from 0 to {LARGEST}",
            "0",
        ),
        (
            factory("{}"),
            'connection-factory "one"',
            "idle-timeout-in-seconds",
            "",
            f"a whole number of seconds from 0 to {LARGEST}",
            "0",
        ),
    ],
)
def test_numbers(
    text: str, element: str, attribute: str, bad: str, expected: str, good: str
) -> None:
    assert told(text.format(f'{attribute}="{bad}"')) == [
        f'{element}, attribute {attribute}="{bad}": expected {expected}'
    ]
    assert told(text.format(f'{attribute}="{good}"')) == []


@pytest.mark.parametrize(
    "word",
    [
        "built-in-dmq",
        "BUILT-IN-DMQ",
        "imq.bridge.jms.dmq",
        "Imq.Bridge.JMS.dmq",
        "AS_SOURCE",
        "as_source",
    ],
)
@pytest.mark.parametrize(
    ("template", "element", "attribute"),
    [
        ('<jmsbridge name="{}"/>', "jmsbridge", "name"),
        (document(link().replace('"orders"', '"{}"', 1)), "link", "name"),
        (
            document(factories='<connection-factory ref-name="{}"/>'),
            "connection-factory",
            "ref-name",
        ),
        (document(destinations='<destination name="q" ref-name="{}"/>'), "destination", "ref-name"),
    ],
)
def test_reserved_names(word: str, template: str, element: str, attribute: str) -> None:
    reserved = next(
        name
        for name in ("built-in-dmq", "imq.bridge.jms.dmq", "AS_SOURCE")
        if name.lower() == word.lower()
    )
    expected = f'{element} "{word}", attribute {attribute}="{word}": expected another name: {reserved} is reserved, in any case'
    assert expected in told(template.replace("{}", word), None)


@pytest.mark.parametrize("word", ["Built-in-DMQ", "imq.bridge.jms.dmq", "As_Source"])
def test_reserved_names_of_dmqs(word: str) -> None:
    [found] = told(
        document(dmqs=f'<dmq name="{word}" connection-factory-ref="there" destination-ref="out"/>')
    )
    assert found.startswith(f'dmq "{word}", attribute name="{word}": expected another name: ')


@pytest.mark.parametrize("word", ["JMS_SUN_JMSBRIDGE_NAME", "jms_sun_jmsbridge_name"])
def test_the_bridge_name_property_is_reserved(word: str) -> None:
    reserved = "expected another name: JMS_SUN_JMSBRIDGE_NAME is reserved, in any case"
    assert told(document(link(name=word))) == [
        f'link "{word}", attribute name="{word}": {reserved}'
    ]
    assert told(target(inside=f'<property name="{word}" value="x"/>')) == [
        f'property "{word}" of target of link "orders", attribute name="{word}": {reserved}'
    ]
    assert told(dmq("", f'<property name="{word}" value="x"/>')) == []


def test_a_destination_may_have_the_built_in_dmqs_name_at_its_provider() -> None:
    assert (
        told(document(destinations='<destination ref-name="in" name="imq.bridge.jms.dmq"/>')) == []
    )


@pytest.mark.parametrize("name", ["", " ", " orders", "a&#10;b"])
def test_what_is_no_name(name: str) -> None:
    [found] = told(document(link(name=name)))
    assert found.endswith(
        "expected a name: characters that can be printed, without blanks around them"
    )


def test_the_bridges_own_name() -> None:
    assert told('<jmsbridge name="MQ"/>') == [
        'jmsbridge "MQ", attribute name="MQ": expected mq, the name of this bridge in imq.bridge.activelist'
    ]
    assert told('<jmsbridge name="MQ"/>', None) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            document(link() + "\n" + link()),
            '3: link "orders", attribute name="orders": expected a name that no other link has',
        ),
        (
            document(dmqs='<dmq name="built-in-dmq"/>\n<dmq name="built-in-dmq"/>'),
            '4: dmq "built-in-dmq", attribute name="built-in-dmq": expected a name that no other dmq has',
        ),
        (
            document(factories=FACTORIES + '<connection-factory ref-name="here"/>'),
            '6: connection-factory "here", attribute ref-name="here": expected a name that no other connection-factory has',
        ),
        (
            document(destinations=DESTINATIONS + '<destination ref-name="in" name="x"/>'),
            '9: destination "in", attribute ref-name="in": expected a name that no other destination has',
        ),
    ],
)
def test_names_that_come_twice(text: str, expected: str) -> None:
    [found] = problems(text)
    assert str(found).startswith(f"{ORIGIN}:{expected}, and that of line ")


def test_all_references_to_what_is_not_there_are_one_problem() -> None:
    def links(count: int) -> list[str]:
        target = '<target connection-factory-ref="there" destination-ref="ou"/>'
        return told(
            document("\n".join(link(name=f"l{number}", target=target) for number in range(count)))
        )

    told_first = 'target of link "l0", attribute destination-ref="ou": expected the ref-name of a destination of this file'
    near = "; the nearest known name is out"
    assert links(1) == [f"{told_first}{near}"]
    assert links(2) == [f"{told_first}, as on line 3{near}"]
    assert links(4) == [f"{told_first}, as on lines 3, 4, 5{near}"]
    first_20 = ", ".join(str(line) for line in range(3, 23))
    assert links(25) == [f"{told_first}, as on lines {first_20} and 4 more{near}"]


def test_elements_of_different_kinds_may_have_one_name() -> None:
    text = '<jmsbridge name="mq"><connection-factory ref-name="a"/><destination ref-name="a" name="a"/></jmsbridge>'
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            source("", factory="hree"),
            'source of link "orders", attribute connection-factory-ref="hree": expected the ref-name of a connection-factory of this '
            "file; the nearest known name is here",
        ),
        (
            source("", place="zzz"),
            'source of link "orders", attribute destination-ref="zzz": expected the ref-name of a destination of this file',
        ),
        (
            source("", place="AS_SOURCE"),
            'source of link "orders", attribute destination-ref="AS_SOURCE": expected the ref-name of a destination of this file; '
            "AS_SOURCE, written so, can be only the destination-ref of a target",
        ),
        (
            target(place="as_source"),
            'target of link "orders", attribute destination-ref="as_source": expected the ref-name of a destination of this file; '
            "AS_SOURCE, written so, can be only the destination-ref of a target",
        ),
        (
            document(dmqs='<dmq name="dead" destination-ref="out"/>'),
            'dmq "dead", attribute connection-factory-ref missing: expected a value, which every dmq but built-in-dmq must have',
        ),
        (
            document(dmqs='<dmq name="dead" connection-factory-ref="here"/>'),
            'dmq "dead", attribute destination-ref missing: expected a value, which every dmq but built-in-dmq must have',
        ),
        (
            document(dmqs='<dmq name="dead" connection-factory-ref="x" destination-ref="out"/>'),
            'dmq "dead", attribute connection-factory-ref="x": expected the ref-name of a connection-factory of this file',
        ),
        (
            document(destinations='<destination ref-name="a"/>'),
            'destination "a", attribute name missing: expected the destination\'s name at its provider, or a lookup-name by which it is found',
        ),
        (
            factory('username="" password="x"'),
            'connection-factory "one", attribute username="": expected a text that is not blank; leave the attribute out for none',
        ),
        (
            factory('username="u"'),
            'connection-factory "one", attribute password missing: expected a password, because there is a username',
        ),
        (
            factory('lookup-name=" "'),
            'connection-factory "one", attribute lookup-name=" ": expected a text that is not blank; leave the attribute out for none',
        ),
        (
            dmq('clientid="a" client-id="b"'),
            'dmq "dead", attribute client-id="b": expected the same as clientid, or only one of the two, which mean the same',
        ),
        (
            target(inside='<property name="" value="x"/>'),
            'property "" of target of link "orders", attribute name="": expected the name of a property',
        ),
    ],
)
def test_rules(text: str, expected: str) -> None:
    assert told(text) == [expected]


def test_a_durable_subscription_to_what_may_be_a_topic_warns_where_no_client_identifier_is_known() -> (
    None
):
    place = '<destination ref-name="in" lookup-name="jms/in"/>'
    text = source('durable-sub="d"').replace('<destination ref-name="in" name="orders"/>', place)
    assert [(problem.attribute, problem.severity) for problem in problems(text)] == [
        ("clientid", Severity.WARNING)
    ]
    here = '<connection-factory ref-name="here"/>'
    assert here in text
    with_id = '<connection-factory ref-name="here"><property name="imqConfiguredClientID" value="bridge"/></connection-factory>'
    assert problems(text.replace(here, with_id)) == []


@pytest.mark.parametrize("name", ["../../x", "a/b", ".", "a.b", "-a", "stomp", "JMS", "x" * 101])
def test_a_bridge_has_a_name_that_a_directory_can_have(name: str) -> None:
    [found] = told(f'<jmsbridge name="{name}"/>', None)
    assert "expected a name that a bridge can have" in found


@pytest.mark.parametrize("name", ["../../x", "/etc", "a/../b", "a//b", "."])
def test_links_and_dead_message_queues_have_names_that_lead_nowhere_else(name: str) -> None:
    assert [problem.attribute for problem in problems(document(link(name=name)))] == ["name"]
    assert [
        problem.attribute for problem in problems(dmq("").replace('name="dead"', f'name="{name}"'))
    ] == ["name"]


def test_the_selector_of_this_broker_is_read() -> None:
    [found] = told(source('selector="colour ="'))
    assert found.startswith(
        'source of link "orders", attribute selector="colour =": expected a message selector; '
    )
    # That of another provider is the other provider's.
    assert told(source('selector="XPATH ="', factory="there")) == []
    assert bridge(source('selector=" "')).links[0].source.selector is None


def test_as_source() -> None:
    [found] = bridge(target(place="AS_SOURCE")).links
    assert found.target.destination is None


@pytest.mark.parametrize("attribute", ["clientid", "client-id"])
def test_both_names_of_a_dmqs_client_identifier(attribute: str) -> None:
    [found] = bridge(dmq(f'{attribute}="c1"')).dmqs
    assert found.clientid == "c1"
    assert told(dmq('clientid="c1" client-id="c1"')) == []


def test_the_built_in_dmq_can_be_tuned() -> None:
    text = document(
        dmqs='<dmq name="dead" connection-factory-ref="here" destination-ref="out"/><dmq name="built-in-dmq" send-attempts="9" '
        'connection-factory-ref="nowhere" destination-ref="nowhere" enabled="false" stay-connected="false" time-to-live-in-millis="1"/>'
    )
    found = bridge(text)
    assert found.built_in_dmq == Dmq("built-in-dmq", send_attempts=9, time_to_live_ms=1)
    assert [one.name for one in found.dmqs] == ["dead"]
    assert bridge(document()).built_in_dmq == BUILT_IN_DMQ


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            source('durable-sub="d"'),
            'source of link "orders", attribute durable-sub="d": expected a source that is a topic; for a queue this attribute is ignored',
        ),
        (
            source('durable-sub="d"', "news"),
            'source of link "orders", attribute clientid missing: expected a client identifier, because there is a durable-sub; without one '
            "the link fails, unless the connection factory brings its own",
        ),
        (
            factory('password="x"'),
            'connection-factory "one", attribute password="********": expected a username with it; without one the password is ignored',
        ),
        (
            factory("", '<property name="imqAckTimeout" value="1"/>'),
            'property "imqAckTimeout" of connection-factory "one", attribute name="imqAckTimeout": expected a property that has an effect '
            "where there is no lookup-name: imqConfiguredClientID, imqDefaultUsername, imqDefaultPassword; this one is ignored",
        ),
        (
            factory(
                'lookup-name="x"', '<property name="a" value="1"/><property name="a" value="2"/>'
            ),
            'property "a" of connection-factory "one", attribute name="a": expected each property once: this one replaces that of line 4',
        ),
        (
            document(link(target='<target connection-factory-ref="here" destination-ref="in"/>')),
            'target of link "orders", attribute destination-ref="in": expected a destination that is not the link\'s source: its messages go '
            "round for ever",
        ),
        (
            document(
                link(target='<target connection-factory-ref="here" destination-ref="AS_SOURCE"/>')
            ),
            'target of link "orders", attribute destination-ref="AS_SOURCE": expected a destination that is not the link\'s source: its '
            "messages go round for ever",
        ),
        (
            document(link(source=NAMED) + link(source=NAMED, name="second")),
            'source of link "second", attribute clientid="c": expected an identifier that no other connection of connection-factory "here" '
            'has, and source of link "orders" has it',
        ),
    ],
)
def test_warnings(text: str, expected: str) -> None:
    [found] = problems(text)
    assert found.severity is Severity.WARNING
    assert str(found).removeprefix(found.where + ": ") == expected


@pytest.mark.parametrize(
    "text",
    [
        factory("", '<property name="imqConfiguredClientID" value="c"/>'),
        factory(
            "", '<property name="provider" value="mine"/><property name="anything" value="x"/>'
        ),
        factory('lookup-name="x"', '<property name="anything" value="x"/>'),
        document(
            link(
                target='<target connection-factory-ref="here" destination-ref="in" message-transformer-class="a.B"/>'
            )
        ),
        document(link(source=NAMED) + link('enabled="false"', source=NAMED, name="spare")),
    ],
)
def test_nothing_to_warn_of(text: str) -> None:
    assert told(text) == []


def test_the_later_property_holds() -> None:
    text = factory(
        'lookup-name="x"', '<property name="a" value="1"/><property name="a" value="2"/>'
    )
    found, _ = read(text.encode(), ORIGIN)
    assert found.connection_factories[0].properties == {"a": "2"}


def test_references_to_the_passfile() -> None:
    text = factory(
        'lookup-name="x" username="u" password="${passfile:there.main}"',
        '<property name="java.naming.security.credentials" value="${passfile:jndi}"/><property name="half" value="a${passfile:jndi}"/>',
    )
    [found] = bridge(text, passwords={"there.main": "s3cret", "jndi": ""}).connection_factories
    assert found.password == "s3cret"
    assert found.properties == {"java.naming.security.credentials": "", "half": "a${passfile:jndi}"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "${passfile:ther}",
            "a line imq.bridge.config.password.ther=... in the passfile that imq.passfile.enabled has read, and there is none; the nearest "
            "known name is ${passfile:there}",
        ),
        (
            "${passfile:}",
            "a password, or a reference to the passfile such as ${passfile:NAME}, where NAME has letters, digits, '.', '_' and '-'",
        ),
        (
            "${passfile there}",
            "a password, or a reference to the passfile such as ${passfile:NAME}, where NAME has letters, digits, '.', '_' and '-'",
        ),
    ],
)
def test_references_that_lead_nowhere(value: str, expected: str) -> None:
    shown = value if value == "${passfile:ther}" else "********"
    text = factory(f'lookup-name="x" username="u" password="{value}"')
    assert told(text, passwords={"there": "s3cret"}) == [
        f'connection-factory "one", attribute password="{shown}": expected {expected}'
    ]
    inside = f'<property name="my.password" value="{value}"/>'
    [found] = told(factory('lookup-name="x"', inside), passwords={"there": "s3cret"})
    assert found.endswith(f'"{shown}": expected {expected}')


def test_passwords_that_others_can_see_are_warned_of() -> None:
    text = factory(
        'lookup-name="x" username="u" password="s3cret"',
        '<property name="keystorePassword" value="hush"/><property name="colour" value="blue"/>'
        '<property name="pwd" value="${passfile:a}"/><property name="empty.pwd" value=""/>',
    )
    expected = "expected a reference such as ${passfile:NAME} to a line of the passfile, because others may read this file"
    assert told(text, passwords={"a": "b"}, exposed="others may read this file") == [
        f'connection-factory "one", attribute password="********": {expected}',
        f'property "keystorePassword" of connection-factory "one", attribute value="********": {expected}',
    ]
    assert told(text, passwords={"a": "b"}) == []


def test_everything_is_told_at_once_errors_first() -> None:
    text = document(
        link(
            'max-retries="x" enabled="1"',
            source='<source connection-factory-ref="no" destination-ref="in" durable-sub="d"/>',
        ),
        '<dmq name="dead" send-attempts="0"/>',
        FACTORIES + '<connection-factory ref-name="here" password="p"/>',
    )
    with pytest.raises(ConfigurationError) as raised:
        read(text.encode(), ORIGIN, "other")
    assert [
        (one.line, one.attribute, one.severity is Severity.WARNING) for one in raised.value.problems
    ] == [
        (1, "name", False),
        (2, "enabled", False),
        (2, "max-retries", False),
        (2, "connection-factory-ref", False),
        (3, "connection-factory-ref", False),
        (3, "destination-ref", False),
        (3, "send-attempts", False),
        (6, "ref-name", False),
        (2, "durable-sub", True),
        (6, "password", True),
    ]
    assert str(raised.value).splitlines() == [str(problem) for problem in raised.value.problems]


def test_time_goes_with_the_length_of_the_document() -> None:
    links = "".join(link('transacted="false"', name=f"l{index}") for index in range(5000))
    began = time.process_time()
    assert len(bridge(document(links)).links) == 5000
    assert time.process_time() - began < 5


def test_time_goes_with_the_length_of_a_bad_document() -> None:
    links = "".join(
        f'<link name="l{index}"><source connection-factory-ref="x{index}" destination-ref="x{index}" a="b"/><c/></link>'
        for index in range(5000)
    )
    places = "".join(f'<destination ref-name="d{index}" name="d"/>' for index in range(5000))
    began = time.process_time()
    found = problems(document(links, destinations=places))
    assert time.process_time() - began < 10
    assert len(found) == 1000 + 1 + 2 * 5000
    assert "only the first 1000 are listed" in str(found[0])


def test_time_goes_with_the_number_of_attributes() -> None:
    attributes = " ".join(f'a{index}="x"' for index in range(50_000))
    began = time.process_time()
    found = problems(document(f'<link name="l" {attributes}/>'))
    assert time.process_time() - began < 5
    assert sum('="x"' in str(problem) for problem in found) == 1000
