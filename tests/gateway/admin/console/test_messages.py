"""The console's actions on messages: by choice, by selector, and edited."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

import pytest

from tests.gateway.admin.console.serving import (
    EVIL,
    Pages,
    Reply,
    Served,
    client,
    sent,
    serving,
)
from tests.gateway.admin.test_imqcmd_messages import died, listed
from tests.gateway_process import HOST

pytestmark = pytest.mark.process

DEAD = "mq.sys.dmq"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a queue of the test's own."""
    return str(request.node.name).replace("[", ".").rstrip("]")


def ids(served: Served, queue: str) -> list[str]:
    return [each["message_id"] for each in listed(served.gateway, queue)]


def left(served: Served, queue: str) -> list[str]:
    with client(served) as consumer:
        return consumer.left(f"/queue/{queue}")


def dead(served: Served, queue: str, body: str, **headers: str) -> str:
    """Have a message die, and return its id."""
    before = ids(served, DEAD)
    with client(served) as sender:
        died(sender, queue, body, **headers)
    [found] = [each for each in ids(served, DEAD) if each not in before]
    return found


class Operator:
    """Somebody who is logged in, without a browser."""

    def __init__(self, served: Served, user: str) -> None:
        self.served = served
        self.cookie = served.log_in(user)
        self.csrf = served.token(self.cookie)

    def send(self, path: str, **form: str) -> Reply:
        return self.served.ask(f"/console/{path}", {"csrf": self.csrf, **form}, cookie=self.cookie)


def test_chosen_messages_are_moved_by_the_keyboard(pages: Pages, served: Served, name: str) -> None:
    sent(served, name, *"abcd")
    pages.go(f"/console/messages?name={name}")
    for _ in range(2):
        pages.browser.run("document.querySelector('[name=chosen]:not(:checked)').focus()")
        pages.browser.press(" ", 32)
    assert pages.browser.run("document.querySelectorAll('[name=chosen]:checked').length") == 2
    first = ids(served, name)[:2]
    pages.follow("Move")
    pages.browser.until("document.querySelector('dialog').open")
    pages.fill(to=f"{name}.to")
    pages.follow("Look what it would do")
    pages.until_text("It would take 2 of 2 messages.", "dialog")
    wanted = f"""imqcmd move msg -t q -n {name} -selector 'JMSMessageID IN ("""
    assert wanted in pages.text("dialog")
    pages.confirm()
    pages.until_text("2 messages were moved.", "dialog")
    assert ids(served, f"{name}.to") == first
    assert left(served, name) == ["c", "d"]
    assert (
        f"audit: admin from {HOST} did in the console: imqcmd move msg -t q -n {name}"
        in served.log()
    )


def test_a_page_that_follows_keeps_what_is_chosen(pages: Pages, served: Served, name: str) -> None:
    sent(served, name, "a", "b")
    pages.go(f"/console/messages?name={name}")
    pages.browser.run("document.querySelectorAll('[name=chosen]')[1].click()")
    sent(served, name, "c")
    # The page looks again after 15 seconds, which this does not wait for.
    pages.browser.run(
        """(async () => {
          const page = await (await fetch(location.href)).text();
          const html = new DOMParser().parseFromString(page, 'text/html').getElementById('view').innerHTML;
          window.EventSource = function () { setTimeout(() => this.onmessage({data: JSON.stringify({html})})); };
          window.EventSource.prototype.addEventListener = window.EventSource.prototype.close = () => {};
          document.dispatchEvent(new Event('visibilitychange'));
        })()"""
    )
    pages.browser.until("document.querySelectorAll('[name=chosen]').length === 3")
    checked = "[...document.querySelectorAll('[name=chosen]')].map((one) => one.checked)"
    assert pages.browser.run(checked) == [False, True, False]


def test_what_a_selector_matches_is_copied_and_deleted(
    pages: Pages, served: Served, name: str
) -> None:
    sent(served, name, "red", color="red")
    sent(served, name, "blue", color="blue")
    pages.go(
        f"/console/messages?{urlencode({'name': name, 'selector': chr(39).join(['color = ', 'red', ''])})}"
    )
    assert "2 messages" not in pages.act("Copy", to=f"{name}.to")
    assert left(served, f"{name}.to") == ["red"]
    told = pages.act("Delete")
    assert "1 message was deleted." in told
    assert "imqcmd delete msg -t q" in told
    assert left(served, name) == ["blue"]
    # Which messages must be said.
    pages.go(f"/console/messages?name={name}")
    sent(served, name, "green")
    pages.go(f"/console/messages?name={name}")
    pages.follow("Delete")
    pages.until_text("which messages is not said", "dialog")


def test_one_message_is_moved_and_the_page_leads_back(
    pages: Pages, served: Served, name: str
) -> None:
    sent(served, name, "a", "b")
    id = ids(served, name)[0]
    pages.go(f"/console/message?{urlencode({'name': name, 'id': id})}")
    # Only what is dead is replayed.
    assert "Replay" not in pages.text()
    pages.follow("Move")
    pages.browser.until("document.querySelector('dialog').open")
    pages.fill(to=f"{name}.to")
    pages.confirm()
    pages.until_text("1 message was moved.", "dialog")
    assert f"imqcmd move msg -t q -n {name} -msgID {id} -to {name}.to" in pages.text("dialog")
    pages.follow("Close")
    pages.browser.until("location.pathname === '/console/messages'")
    assert left(served, name) == ["b"]


def test_dead_messages_are_replayed_by_cause(pages: Pages, served: Served, name: str) -> None:
    for body in ("a", "b"):
        dead(served, name, body)
    dead(served, f"{name}.other", "c")
    pages.go("/console/dead")
    where = json.dumps(f"queue:{name}'")
    button = (
        "[...document.querySelectorAll('tbody a.button')].find((one) => one.innerText === 'Replay'"
        f" && decodeURIComponent(one.href).includes({where}))"
    )
    pages.browser.run(f"{button}.focus()")
    pages.browser.press("Enter", 13)
    pages.browser.until("document.querySelector('dialog').open")
    pages.until_text("It would take 2 of 2 messages.", "dialog")
    assert f"imqcmd replay msg -t q -n {DEAD} -selector" in pages.text("dialog")
    pages.confirm()
    pages.until_text("2 messages were replayed.", "dialog")
    assert left(served, name) == ["a", "b"]


def test_a_dead_message_is_edited_compared_and_only_then_sent(
    pages: Pages, served: Served, name: str
) -> None:
    id = dead(served, name, '{"a": 1}\nprivate', colour="red", size="1")
    pages.go(f"/console/message?{urlencode({'name': DEAD, 'id': id})}")
    pages.follow("Edit and replay")
    pages.browser.until("location.pathname === '/console/edit'")
    pages.ready()
    assert "private" not in pages.browser.run("document.documentElement.outerHTML")
    pages.follow("Show it")
    pages.until_text("Look at the difference")
    pages.ready()
    assert pages.browser.run("document.querySelector('[name=text]').value") == '{"a": 1}\nprivate'
    # There is nothing to send it with before the difference was seen.
    assert pages.browser.run("document.querySelectorAll('[action$=replay-edited]').length") == 0
    pages.fill(text='{"a": 2}\nprivate', **{"new-name": "mended", "new-value": EVIL})
    pages.fill(priority="9", type="order", expires="2099-12-31T23:59:58")
    pages.browser.run(
        "[...document.querySelectorAll('label')].find((one) => one.innerText.startsWith('colour'))"
        ".querySelector('textarea').value = 'blue'"
    )
    assert pages.faults() == []
    pages.follow("Look at the difference")
    pages.until_text("What is different")
    pages.ready()
    lines = pages.text(".diff").splitlines()
    assert {'-{"a": 1}', '+{"a": 2}', "-colour = red", "+colour = blue", " private"} <= {*lines}
    assert {"-priority 4", "+priority 9", "-no type", "+type order", "-expires never"} <= {*lines}
    assert "+expires 2099-12-31T23:59:58.000Z" in lines
    assert "size" not in " ".join(line for line in lines if line[:1] in "+-")
    assert pages.faults() == []
    assert len(ids(served, DEAD)) == ids(served, DEAD).index(id) + 1
    headers = "-priority 9 -type order -expires 2099-12-31T23:59:58Z"
    assert f"-body FILE {headers} -o colour=blue -o 'mended=" in pages.text("#asked")
    pages.confirm("#asked")
    pages.until_text("1 message was replayed.", "#asked")
    with client(served) as consumer:
        consumer.subscribe(f"/queue/{name}")
        message = consumer.message()
    assert message.text == '{"a": 2}\nprivate'
    assert (message["colour"], message["size"], message["mended"]) == ("blue", "1", EVIL)
    assert (message["priority"], message["type"]) == ("9", "order")
    assert message["expires"] == "4102444798000"
    log = served.log()
    looks = re.findall(
        rf"audit: admin from {HOST} did in the console: curl .*/v1/message/original .*: shown", log
    )
    assert len(looks) == 2
    assert (
        f"imqcmd replay msg -t q -n {DEAD} -msgID {id} -body FILE {headers} -o colour=blue" in log
    )
    assert "private" not in log
    assert pages.browser.console == []


def test_an_edit_without_a_change_sends_it_as_it_was(served: Served, name: str) -> None:
    id = dead(served, name, "two\r\nlines\r\n", colour="a\nb")
    otto = Operator(served, "otto")
    shown = otto.send("edit", name=DEAD, id=id, look="1").text
    fields = dict(re.findall(r'<textarea name="([^"]+)"[^>]*>\n([^<]*)</textarea>', shown))
    # A browser sends lines with CR LF.
    form = {each: re.sub("\r?\n", "\r\n", html.unescape(text)) for each, text in fields.items()}
    compared = otto.send("edit", name=DEAD, id=id, compare="1", **form).text
    assert "Nothing is: it is sent as it was before it died." in compared
    form["text"] = "two\r\nother lines\r\n"
    compared = otto.send("edit", name=DEAD, id=id, compare="1", **form).text
    found = re.search(r'name="edit" value="([^"]+)"', compared)
    assert found is not None
    edit = html.unescape(found[1])
    assert json.loads(edit) == {"text": "two\r\nother lines\r\n"}
    told = otto.send("act/replay-edited", name=DEAD, id=id, edit=edit).text
    assert "1 message was replayed." in told
    with client(served) as consumer:
        consumer.subscribe(f"/queue/{name}")
        assert consumer.message().text == "two\r\nother lines\r\n"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"edit": "{"}, "edit is no JSON object"),
        ({"edit": '{"text": 1}'}, "text is 1; expected text"),
        ({"edit": '{"priority": 10}'}, "priority is 10; expected a number from 0 to 9"),
        ({"edit": '{"priority": true}'}, "priority is True; expected a number from 0 to 9"),
        ({"edit": '{"priority": ""}'}, "priority is ''; expected a number from 0 to 9"),
        ({"edit": '{"type": 7}'}, "type is 7; expected text"),
        ({"edit": '{"type": "\\ud800"}'}, "type is '\\ud800'; expected text"),
        ({"edit": '{"expires": "soon"}'}, "expires is 'soon'; expected a time such as"),
        ({"edit": '{"expires": 5}'}, "expires is 5; expected a time such as"),
        ({"edit": "{}", "to": "orders"}, "expected queue:NAME or topic:NAME"),
        ({}, "edit is missing"),
    ],
    ids=str,
)
def test_a_wrong_edit_is_refused(
    served: Served, name: str, form: Mapping[str, str], text: str
) -> None:
    id = dead(served, "edited", "x")
    reply = Operator(served, "otto").send("act/replay-edited", name=DEAD, id=id, **form)
    assert text in html.unescape(reply.text)
    assert id in ids(served, DEAD)
    [line] = [line for line in served.log().splitlines() if html.unescape(text) in line]
    assert f"audit: otto from {HOST} was refused in the console: " in line


def test_a_property_whose_name_is_none_keeps_the_message(served: Served) -> None:
    id = dead(served, "edited", "x")
    form = {"name": DEAD, "id": id, "new-name": "a b", "new-value": "c"}
    reply = Operator(served, "otto").send("edit", compare="1", **form)
    assert (
        "It would take 0 of 1 messages. 1 of 1 messages stay: &#39;a b&#39; is no name of a property."
        in reply.text
    )
    assert "act/replay-edited" not in reply.text


@pytest.mark.parametrize("moment", ["2020-01-31T12:00:00", "1970-01-01T00:00:00"])
def test_an_expiry_in_the_past_keeps_the_message(served: Served, moment: str) -> None:
    id = dead(served, "edited", "x")
    form = {"name": DEAD, "id": id, "expires": moment}
    reply = Operator(served, "otto").send("edit", compare="1", **form)
    assert "which is in the past: expected a later time, or never" in reply.text
    assert "act/replay-edited" not in reply.text
    edit = json.dumps({"expires": f"{moment}Z"})
    reply = Operator(served, "otto").send("act/replay-edited", name=DEAD, id=id, edit=edit)
    assert "0 messages were replayed. 1 of 1 messages stay" in reply.text
    assert id in ids(served, DEAD)


def test_headers_that_are_emptied_are_taken_away(served: Served, name: str) -> None:
    id = dead(served, name, "x", type="order", priority="7")
    otto = Operator(served, "otto")
    shown = otto.send("edit", name=DEAD, id=id, look="1").text
    for field in (
        'name="priority" type="number" min="0" max="9" required value="7"',
        'name="type" value="order"',
        'type="datetime-local" step="1" value=""',
    ):
        assert field in shown
    form = {"priority": "7", "type": "order", "expires": ""}
    compared = otto.send("edit", name=DEAD, id=id, compare="1", **form).text
    assert "Nothing is: it is sent as it was before it died." in compared
    form = {"priority": "7", "type": "", "expires": ""}
    compared = otto.send("edit", name=DEAD, id=id, compare="1", **form).text
    assert f"-msgID {id} -type &#39;&#39;" in compared
    found = re.search(r'name="edit" value="([^"]+)"', compared)
    assert found is not None
    edit = html.unescape(found[1])
    assert json.loads(edit) == {"type": ""}
    assert "1 message was" in otto.send("act/replay-edited", name=DEAD, id=id, edit=edit).text
    with client(served) as consumer:
        consumer.subscribe(f"/queue/{name}")
        message = consumer.message()
    assert "type" not in message
    assert message["priority"] == "7"


def test_what_is_not_dead_is_not_edited(served: Served, name: str) -> None:
    sent(served, name, "secret")
    reply = Operator(served, "otto").send("edit", name=name, id=ids(served, name)[0], look="1")
    assert "they are not dead: move them" in reply.text
    assert "secret" not in reply.text


@pytest.mark.parametrize("word", ["move-msg", "copy-msg", "delete-msg", "replay-msg"])
def test_who_only_looks_and_who_comes_from_elsewhere_does_nothing(
    served: Served, name: str, word: str
) -> None:
    sent(served, name, "a")
    vera, otto = Operator(served, "vera"), Operator(served, "otto")
    page = served.ask(f"/console/messages?name={name}", cookie=vera.cookie)
    assert page.status == 200
    assert "act/" not in page.text
    assert 'name="chosen"' not in page.text
    form = {"name": name, "limit": "1", "to": "elsewhere"}
    refused = vera.send(f"act/{word}", **form)
    assert (refused.status, "needs the role operator" in refused.text) == (403, True)
    command = f"imqcmd {word[:-4]} msg -t q -n {name} -limit 1 -to elsewhere"
    if word == "delete-msg":
        command = command.removesuffix(" -to elsewhere")
    was_refused = f"from {HOST} was refused in the console: {command}: "
    assert f"audit: vera {was_refused}that needs the role operator" in served.log()
    otto.csrf = vera.csrf
    assert otto.send(f"act/{word}", **form).status == 403
    assert f"audit: otto {was_refused}the form is of another session" in served.log()
    assert left(served, name) == ["a"]


def test_an_edit_is_for_operators_and_of_this_console(served: Served) -> None:
    id = dead(served, "edited", "secret")
    vera, otto = Operator(served, "vera"), Operator(served, "otto")
    path = f"edit?{urlencode({'name': DEAD, 'id': id})}"
    assert served.ask(f"/console/{path}", cookie=vera.cookie).status == 403
    assert (
        "Edit"
        not in served.ask(
            f"/console/message?{urlencode({'name': DEAD, 'id': id})}", cookie=vera.cookie
        ).text
    )
    for who in (vera, otto):
        if who is otto:
            otto.csrf = vera.csrf
        for step in ("look", "compare"):
            reply = who.send("edit", name=DEAD, id=id, **{step: "1"})
            assert (reply.status, "secret" in reply.text) == (403, False)
    assert served.log().count("was refused in the console: curl -u USER -G") >= 4


def test_headers_and_names_of_clients_are_only_text(pages: Pages, served: Served) -> None:
    id = dead(served, f"q{EVIL}", EVIL, colour=EVIL)
    with client(served) as sender:
        sender.put(f"/queue/r{EVIL}", "x", colour=EVIL)
    for path in (
        f"/console/messages?{urlencode({'name': f'r{EVIL}'})}",
        f"/console/message?{urlencode({'name': DEAD, 'id': id})}",
        f"/console/edit?{urlencode({'name': DEAD, 'id': id})}",
    ):
        pages.go(path)
        pages.until_text("essage", "h1")
        assert "evil" not in pages.browser.run("document.title").replace(EVIL, "")
    pages.follow("Show it")
    pages.until_text("Look at the difference")
    pages.ready()
    assert pages.browser.run("document.querySelector('[name=text]').value") == EVIL
    pages.fill(text=f"{EVIL}!")
    pages.follow("Look at the difference")
    pages.until_text(f"+{EVIL}!", ".diff")
    pages.ready()
    pages.confirm("#asked")
    pages.until_text("1 message was replayed.", "#asked")
    pages.go(f"/console/messages?{urlencode({'name': f'r{EVIL}'})}")
    pages.browser.run("document.querySelector('[name=chosen]').click()")
    pages.follow("Move")
    pages.until_text(f"Move messages of queue r{EVIL}?", "dialog")
    assert pages.browser.run("document.title") != "evil"
    assert pages.browser.console == []


def test_the_pages_of_messages_are_accessible_and_fit_on_a_phone(
    pages: Pages, served: Served, name: str
) -> None:
    id = dead(served, name, "x")
    for path in (
        f"/console/messages?name={DEAD}",
        f"/console/message?{urlencode({'name': DEAD, 'id': id})}",
        f"/console/edit?{urlencode({'name': DEAD, 'id': id})}",
    ):
        for dark in (False, True):
            pages.go(path, dark=dark)
            assert pages.faults() == [], path
        pages.go(path, width=360)
        assert pages.browser.run("document.documentElement.scrollWidth") <= 360, path
    pages.follow("Show it")
    pages.until_text("Look at the difference")
    pages.ready()
    assert pages.browser.run("document.documentElement.scrollWidth") <= 360
