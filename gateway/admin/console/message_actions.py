"""What can be done to messages in the console.

Owns the actions on messages of a queue, one or many, dead ones among them: those that move, copy,
delete and replay, and those that show a body. Which messages can be touched, the broker knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from gateway.admin.console import subjects
from gateway.admin.console.actions import SELECTOR, Action, Field, Given, option, tally
from gateway.admin.service.browsing import quoted
from gateway.admin.service.edited import EDITED, edit_of
from gateway.admin.service.requests import Refused
from gateway.instance.problems import printable

_MOST: Final = Field("limit", "At most", "number", help="Messages. Empty: all of them.")
_TO: Final = Field("to", "To", help="Such as queue:orders. Empty: to where each came from.")
_EXPIRES: Final = Field(
    "expires",
    "Expires",
    help="A time such as 2030-01-31T12:00:00Z, or never: the same for each. Empty: as before they "
    "died; what has expired does not again.",
)
_TO_QUEUE: Final = Field("to", "To the queue", required=True)
_WHICH: Final = (
    SELECTOR,
    Field("id", "Message id", help="Only the message with this id."),
    Field("limit", "At most", "number", help="Messages. One of these three must be given."),
)


def chosen(ids: Sequence[str]) -> Mapping[str, str]:
    """Return which messages were chosen on a page, as parameters of an action.

    :param ids: their JMSMessageIDs.
    """
    if len(ids) == 1:
        return {"id": ids[0]}
    return {"selector": f"JMSMessageID IN ({', '.join(map(quoted, ids))})"}


def _order(word: str, given: Given) -> list[str]:
    return [
        *("imqcmd", word, "msg", "-t", "q", "-n", given["name"]),
        *option(given, "-msgID", "id"),
        *option(given, "-selector", "selector"),
        *option(given, "-limit", "limit"),
        *option(given, "-to", "to"),
        *option(given, "-expires", "expires"),
    ]


def _queue(given: Given) -> str:
    # The page of one message has nothing to show when it has left.
    return f"messages?{urlencode({'name': given['name']})}" if given.get("id") else ""


def _of_messages(
    word: str,
    done: str,
    question: str,
    *fields: Field,
    danger: bool = False,
    back: Callable[[Given], str] = _queue,
) -> Action:
    return Action(
        f"{word}-msg",
        word.capitalize(),
        question,
        "POST",
        f"/v1/message/{word}",
        lambda given: _order(word, given),
        ("name",),
        (*fields, *_WHICH),
        tally(done),
        dry_run=True,
        danger=danger,
        back=back,
        subject=subjects.messages,
    )


def _by_http(path: str, given: Given) -> list[str]:
    pairs = (f"{name}={given[name]}" for name in ("name", "id", "to") if given.get(name))
    data = (word for pair in pairs for word in ("--data-urlencode", pair))
    return ["curl", "-u", "USER", "-G", f"{given['address']}{path}", *data]


def _dead_options(given: Given) -> list[str]:
    return [
        *option(given, "-selector", "selector"),
        *option(given, "-to", "to"),
        *option(given, "-limit", "limit"),
    ]


def _body(answer: Mapping[str, Any]) -> str:
    """Return a body with its lines, and no other control characters."""
    lines = "\n".join(map(printable, answer["text"].replace("\r\n", "\n").split("\n")))
    cut = answer["octets"] > answer["shown"]
    return f"{lines}\n… {answer['shown']} of {answer['octets']} bytes" if cut else lines


#: Shows a dead message as a replay would send it, so that it can be edited.
LOOK_TO_EDIT: Final = Action(
    "look-to-edit",
    "Edit and replay",
    "Show message {id} in queue {name} with its body, so that it can be edited? The log will say that "
    "you looked at it.",
    "GET",
    "/v1/message/original",
    lambda given: _by_http("/v1/message/original", given),
    ("name", "id"),
    (_TO,),
    secret=True,
    subject=subjects.messages,
)


def _edit_of(given: Given) -> dict[str, Any]:
    try:
        edit = json.loads(given["edit"])
        edit_of(edit)
    except (AttributeError, ValueError):
        raise Refused(f"edit is no JSON object of {', '.join(EDITED)}", "bad_request") from None
    return {name: edit[name] for name in EDITED if edit.get(name) is not None}


def _with_edit(given: Given) -> list[str]:
    edit = _edit_of(given)
    text = ["-body", "FILE"] if "text" in edit else []
    headers = (
        word
        for name in ("priority", "type", "expires")
        if name in edit
        for word in (f"-{name}", str(edit[name]))
    )
    pairs = (f"{name}={value}" for name, value in edit.get("properties", {}).items())
    return [
        *_order("replay", given),
        *text,
        *headers,
        *(word for pair in pairs for word in ("-o", pair)),
    ]


def _edited(given: Given) -> dict[str, object]:
    return {
        **{name: value for name, value in given.items() if name != "edit"},
        **_edit_of(given),
    }


#: Replays a dead message with what ``edit`` changes of it, in JSON as the route has it.
REPLAY_EDITED: Final = Action(
    "replay-edited",
    "Replay",
    "Send message {id} as it is edited?",
    "POST",
    "/v1/message/replay",
    _with_edit,
    ("name", "id", "edit"),
    (_TO,),
    tally("replayed"),
    dry_run=True,
    body=_edited,
    back=_queue,
    subject=subjects.messages,
)

_OF_MESSAGES: Final = (
    Action(
        "look-body",
        "Show the body",
        "Show the body of message {id} in queue {name}? The log will say that you looked at it.",
        "GET",
        "/v1/message/body",
        lambda given: _by_http("/v1/message/body", given),
        ("name", "id"),
        done=_body,
        secret=True,
        subject=subjects.messages,
    ),
    _of_messages("move", "moved", "Move messages of queue {name}? They keep their ids.", _TO_QUEUE),
    _of_messages(
        "copy",
        "copied",
        "Copy messages of queue {name}? The copies have ids of their own.",
        _TO_QUEUE,
        back=lambda given: "",
    ),
    _of_messages(
        "replay",
        "replayed",
        "Send dead messages of queue {name} again, as they were before they died?",
        _TO,
        _EXPIRES,
    ),
    _of_messages(
        "delete",
        "deleted",
        "Throw messages of queue {name} away? They do not go to the dead message queue.",
        danger=True,
    ),
    Action(
        "replay-dead",
        "Replay",
        "Send dead messages again, to where a bridge got them from, or to another place?",
        "POST",
        "/v1/dead/replay",
        lambda given: ["imqbridgemgr", "replay", "dead", *_dead_options(given)],
        (),
        (SELECTOR, _TO, _MOST),
        tally("replayed"),
        dry_run=True,
    ),
    Action(
        "purge-dead",
        "Purge",
        "Throw dead messages away?",
        "POST",
        "/v1/dead/purge",
        lambda given: ["imqbridgemgr", "purge", "dead", *_dead_options(given)],
        (),
        (SELECTOR, _MOST),
        tally("purged"),
        dry_run=True,
        danger=True,
    ),
)

MESSAGE_ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action for action in (*_OF_MESSAGES, REPLAY_EDITED)
}
