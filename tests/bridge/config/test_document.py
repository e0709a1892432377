"""What is read of a document: its encoding, its DOCTYPE, entities, and nothing from anywhere
else.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from bridge.config.document import LARGEST
from bridge.config.problems import Severity
from tests.bridge.config.documents import bridge, document, link, problems, told

#: The structure in Open MQ's guide, its pseudo-attributes filled in.
ORIGINAL = """\
<jmsbridge name="mq2external" log-message-transfer="false">
    <link name="link1" transacted="false">
        <description>from here to there</description>
        <source connection-factory-ref="here" destination-ref="in">
            <description>orders</description>
        </source>
        <target connection-factory-ref="there" destination-ref="out" stay-connected="false">
            <description>accepted orders</description>
            <property name="colour" value="blue" />
            <property name="size" value="" />
        </target>
    </link>
    <dmq name="built-in-dmq" send-attempts="2">
        <description>tuned</description>
    </dmq>
    <dmq name="dead" connection-factory-ref="there" destination-ref="out" client-id="dead1">
        <property name="colour" value="black" />
    </dmq>
    <connection-factory ref-name="here">
        <description>this broker</description>
    </connection-factory>
    <connection-factory ref-name="there" lookup-name="ConnectionFactory">
        <property name="java.naming.provider.url" value="tcp://host:61616" />
    </connection-factory>
    <destination ref-name="in" name="orders" type="queue"/>
    <destination ref-name="out" name="accepted" type="queue">
        <description>at the other provider</description>
    </destination>
</jmsbridge>
"""


@pytest.mark.parametrize(
    "doctype",
    [
        "",
        '<?xml version="1.0"?>',
        "<!DOCTYPE jmsbridge>",
        '<!DOCTYPE jmsbridge SYSTEM "sun_jmsbridge_1_0.dtd">',
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE jmsbridge SYSTEM "sun_jmsbridge_1_1.dtd">',
        '<!DOCTYPE jmsbridge SYSTEM "file:///opt/sun/mq/lib/dtd/sun_jmsbridge_1_0.dtd">',
        '<!DOCTYPE jmsbridge SYSTEM "http://192.0.2.1/dtd/sun_jmsbridge_1_1.dtd">',
        '<!DOCTYPE jmsbridge SYSTEM "C:\\mq\\lib\\dtd\\sun_jmsbridge_1_0.dtd">',
        '<!DOCTYPE jmsbridge PUBLIC "-//Sun//DTD" "sun_jmsbridge_1_0.dtd">',
        '<!DOCTYPE jmsbridge PUBLIC "sun_jmsbridge_1_1.dtd" "jms.dtd">',
        '<!DOCTYPE jmsbridge SYSTEM "sun_jmsbridge_1_0.dtd" [<!ENTITY unused "x">]>',
    ],
)
def test_the_originals_documents(doctype: str) -> None:
    found = bridge(doctype + "\n" + ORIGINAL, "mq2external")
    [one] = found.links
    assert (one.name, one.transacted, one.description) == ("link1", False, "from here to there")
    assert (one.source.description, one.target.description) == ("orders", "accepted orders")
    assert one.target.properties == {"colour": "blue", "size": ""}
    assert found.built_in_dmq.send_attempts == 2
    assert [dmq.clientid for dmq in found.dmqs] == ["dead1"]
    assert found.connection_factories[1].properties == {
        "java.naming.provider.url": "tcp://host:61616"
    }
    assert not found.log_message_transfer


@pytest.mark.parametrize(
    ("doctype", "expected"),
    [
        (
            '<!DOCTYPE jmsbridge SYSTEM "http://host/sun_jmsbrigde_1_0.dtd">',
            'DOCTYPE, attribute SYSTEM="http://host/sun_jmsbrigde_1_0.dtd": expected sun_jmsbridge_1_0.dtd or sun_jmsbridge_1_1.dtd, in '
            "whatever directory; it is not fetched; the nearest known name is sun_jmsbridge_1_0.dtd",
        ),
        ("<!DOCTYPE bridge>", "DOCTYPE: expected a DOCTYPE for jmsbridge, and not for bridge"),
    ],
)
def test_another_doctype(doctype: str, expected: str) -> None:
    assert told(doctype + document()) == [expected]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?>' + document(
        destinations='<destination ref-name="in" name="Aufträge"/>'
    )
    assert problems(text.encode(encoding)) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "1: expected well-formed XML; at column 1: Document is empty"),
        (b"\0\0\0\0", "1: expected well-formed XML; at column 1: Document is empty"),
        (
            b"<jmsbridge>\n<link>\n</jmsbridge>",
            "3: expected well-formed XML; at column 13: Opening and ending tag mismatch: link line 2 and",
        ),
        (
            b'<jmsbridge name="a" name="b"/>',
            "1: expected well-formed XML; at column 29: Attribute name redefined",
        ),
        (
            b"<jmsbridge/>\n<jmsbridge/>",
            "2: expected well-formed XML; at column 1: Extra content at the end of the document",
        ),
        ('<jmsbridge name="é"/>'.encode("latin-1"), "1: expected well-formed XML; at column "),
        (
            b'<?xml version="1.0" encoding="klingon"?><jmsbridge/>',
            "1: expected well-formed XML; at column 39: Unsupported encoding: klingon",
        ),
        (
            b'<jmsbridge name="&broker;"/>',
            "1: expected entities that the document itself declares, as those of other files are not read; at ",
        ),
    ],
)
def test_what_is_no_xml(data: bytes, expected: str) -> None:
    found = problems(data)
    assert str(found[0]).startswith(f"jmsbridge1.xml:{expected}")
    assert len(found) == 1


@pytest.mark.parametrize("tag", ["bridge", "link"])
def test_another_root(tag: str) -> None:
    assert told(f"<{tag}/>") == [f"{tag}: expected a document whose outermost element is jmsbridge"]


def test_entities_of_the_document_itself() -> None:
    text = '<!DOCTYPE jmsbridge [<!ENTITY q "orders"><!ENTITY d "the &q;">]>' + document(
        destinations='<destination ref-name="in" name="&q;.new"><description>&d;</description></destination>'
    )
    [place] = bridge(text).destinations
    assert (place.name, place.description) == ("orders.new", "the orders")


LAUGHS = '<!ENTITY l0 "lol">' + "".join(
    f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 13)
)
BLOWN = f'<!ENTITY l0 "{"x" * 50_000}">'


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        (LAUGHS, "&l12;"),
        (BLOWN, "&l0;" * 20_000),
        ('<!ENTITY l0 "&l1;"><!ENTITY l1 "&l0;">', "&l0;"),
    ],
    ids=["billion laughs", "quadratic", "loop"],
)
@pytest.mark.parametrize("place", ["attribute", "text"])
def test_entities_that_grow(declared: str, used: str, place: str) -> None:
    inside = (
        f'<jmsbridge name="{used}"/>'
        if place == "attribute"
        else f"<jmsbridge><link><description>{used}</description></link></jmsbridge>"
    )
    began = time.process_time()
    found = problems(f"<!DOCTYPE jmsbridge [{declared}]>{inside}")
    assert time.process_time() - began < 5
    assert found[0].expected.startswith(
        "entities that expand to little, and elements that are not deep in each other; at column"
    )


def test_depth() -> None:
    [found] = problems("<jmsbridge>" * 5000)
    assert found.expected.startswith(
        "entities that expand to little, and elements that are not deep in each other; at column"
    )


@pytest.mark.parametrize(
    "template",
    [
        '<!DOCTYPE jmsbridge [<!ENTITY x SYSTEM "{url}">]><jmsbridge><description>&x;</description></jmsbridge>',
        '<!DOCTYPE jmsbridge [<!ENTITY x SYSTEM "{url}">]><jmsbridge name="&x;"/>',
        '<!DOCTYPE jmsbridge [<!ENTITY x PUBLIC "p" "{url}">]><jmsbridge name="&x;"/>',
        '<!DOCTYPE jmsbridge [<!ENTITY % x SYSTEM "{url}"> %x;]><jmsbridge/>',
    ],
)
def test_entities_of_other_files_are_not_read(template: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('<!ENTITY y "hidden">')
    found = told(template.format(url=secret.as_uri()))
    assert found[0].startswith(
        "expected entities that the document itself declares, as those of other files are not read; at column"
    )
    assert "hidden" not in str(found)


@pytest.mark.process
@pytest.mark.parametrize(
    "template",
    [
        '<!DOCTYPE jmsbridge SYSTEM "{url}/sun_jmsbridge_1_0.dtd"><jmsbridge name="mq"/>',
        '<!DOCTYPE jmsbridge [<!ENTITY x SYSTEM "{url}/x">]><jmsbridge name="mq"><description>&x;</description></jmsbridge>',
        '<!DOCTYPE jmsbridge [<!ENTITY % x SYSTEM "{url}/x"> %x;]><jmsbridge name="mq"/>',
        '<jmsbridge name="mq" xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{url}/x"/></jmsbridge>',
    ],
)
def test_nothing_is_fetched(template: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        problems(template.format(url=f"http://127.0.0.1:{port}"))
        # If the parser had called, it would be first in the queue.
        ours = threading.Thread(
            target=lambda: socket.create_connection(("127.0.0.1", port)).sendall(b"ours")
        )
        ours.start()
        accepted, _ = server.accept()
        ours.join()
        with accepted:
            assert accepted.recv(4) == b"ours"


def test_a_document_that_is_too_large() -> None:
    assert told(b" " * (LARGEST + 1)) == [f"expected a document of at most {LARGEST} octets"]
    assert problems(document().encode().ljust(LARGEST)) == []


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (
            link('trnsacted="true"'),
            'link "orders", attribute trnsacted="true": expected an attribute that link has: add-message-id-in-header, enabled, '
            "failure-retry-interval, loop-guard, max-batch-size, max-batch-time, max-bytes-per-second, max-messages-per-second, max-retries, name, quality-of-service, transacted; the "
            "nearest known name is transacted",
        ),
        (link('enabled="yes"'), 'link "orders", attribute enabled="yes": expected true or false'),
        (link('enabled="TRUE"'), 'link "orders", attribute enabled="TRUE": expected true or false'),
        (
            link('quality-of-service="EXACTLY_ONCE"'),
            'link "orders", attribute quality-of-service="EXACTLY_ONCE": expected AT_MOST_ONCE, DUPLICATES_OK or ONCE_AND_ONLY_ONCE',
        ),
        (
            '<queue ref-name="x"/>',
            'queue "x": expected an element that jmsbridge has: link, dmq, connection-factory, destination',
        ),
        (
            '<conection-factory ref-name="x"/>',
            'conection-factory "x": expected an element that jmsbridge has: link, dmq, connection-factory, destination; the nearest known '
            "name is connection-factory",
        ),
        (
            "hello",
            'jmsbridge "mq": expected no text between the elements of jmsbridge, and there is "hello"',
        ),
        (
            '<x:link xmlns:x="urn:x"/>',
            "{urn:x}link: expected an element that jmsbridge has: link, dmq, connection-factory, destination",
        ),
    ],
)
def test_structure(inside: str, expected: str) -> None:
    assert told(document(inside)) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            document(destinations='<destination ref-name="in" name="q" type="Queue"/>'),
            'destination "in", attribute type="Queue": expected queue or topic',
        ),
        (
            f'<jmsbridge name="mq"><destination ref-name="in" name="a"/>{link()}</jmsbridge>',
            'link "orders": expected it before destination: the order in jmsbridge is link, dmq, connection-factory, destination',
        ),
        (
            document(link(target="")),
            'link "orders": expected an element target in it',
        ),
        (
            document(link(source="")),
            'link "orders": expected an element source in it',
        ),
        (
            document(
                destinations='<destination ref-name="in" name="a"><property name="x"/></destination>'
            ),
            'property "x" of destination "in", attribute value missing: expected a value, which every property must have',
        ),
        (
            document(
                destinations='<destination ref-name="in" name="a"><property name="x" value="y"> </property></destination>'
            ),
            'property "x" of destination "in": expected nothing inside property, not even a blank or a comment',
        ),
        (
            document(
                destinations='<destination ref-name="in" name="a"><description a="b"/></destination>'
            ),
            'description of destination "in", attribute a="b": expected an attribute that description has: none',
        ),
        (
            document(
                destinations='<destination ref-name="in" name="a"><description><b/></description></destination>'
            ),
            'b of description of destination "in": expected an element that description has: none',
        ),
        (
            "<jmsbridge/>",
            "jmsbridge, attribute name missing: expected a value, which every jmsbridge must have",
        ),
        (
            '<jmsbridge xml:lang="en" name="mq"/>',
            'jmsbridge "mq", attribute xml:lang="en": expected an attribute that jmsbridge has: log-message-transfer, '
            "message-transfer-tag-bridge-name, name",
        ),
    ],
)
def test_more_structure(text: str, expected: str) -> None:
    assert expected in told(text)


def test_an_element_that_comes_twice() -> None:
    text = '<jmsbridge name="mq">\n<destination ref-name="in" name="a">\n<description/>\n<description/></destination></jmsbridge>'
    [found] = problems(text)
    assert (
        str(found)
        == 'jmsbridge1.xml:4: description of destination "in": expected one description only, and there is another on line 3'
    )
    assert found.severity is Severity.BRIDGE


def test_what_may_be_a_secret_is_not_shown() -> None:
    text = document(
        factories='<connection-factory ref-name="here" username="u" pasword="gr8" lookup-name="x">'
        '<property name="keystore.password" valeu="hush" value="x"/></connection-factory>'
    )
    found = told(text)
    assert (
        'connection-factory "here", attribute pasword="********": expected an attribute that connection-factory has'
        in found[0]
    )
    assert "gr8" not in str(found)
    assert "hush" not in str(found)


def test_a_problem_is_one_line() -> None:
    [found] = told(document(link('a="&#10;[2J&#8238;x"')))
    assert "\n" not in found
    assert 'attribute a="\\n[2J\\u202ex": expected' in found


def test_a_long_value_is_shortened() -> None:
    [found] = told(document(link(f'enabled="{"x" * 500}"')))
    assert found == f'link "orders", attribute enabled="{"x" * 80}...": expected true or false'
