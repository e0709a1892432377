"""Events as JSON: one object a line, its fields, and no secret."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from gateway.instance.levels import Level
from gateway.instance.log_lines import JSON, TEXT, object_of, objects_of
from gateway.instance.redaction import Redaction
from gateway.messaging.destination import Queue

SECRET = "correct-horse-battery"


def event(format: str = "text", **fields: Any) -> dict[str, Any]:
    return {
        "log_format": format,
        "log_level": LogLevel.info,
        "log_namespace": "n",
        "log_time": 1769860800.25,
        "log_source": object(),
        **fields,
    }


def said(of: dict[str, Any], *secrets: str, level: Level = Level.INFO) -> Any:
    line = object_of(of, level, Redaction(secrets))
    assert line.isascii()
    assert line.isprintable()
    return json.loads(line)


def failed(text: str) -> Failure:
    try:
        raise ValueError(text)
    except ValueError:
        return Failure()  # type: ignore[no-untyped-call]


def test_an_event_is_an_object_with_its_own_fields() -> None:
    assert said(event("{who} sent {count}", who="world", count=3, ready=True, part=0.5)) == {
        "time": "2026-01-31T12:00:00.250Z",
        "level": "INFO",
        "logger": "n",
        "message": "world sent 3",
        "fields": {"who": "world", "count": 3, "ready": True, "part": 0.5},
    }


def test_what_is_all_of_the_message_is_not_said_twice_and_nothing_is_no_field() -> None:
    found = said(event("{line}", line="ready", bridge=None, announced=True))
    assert found["message"] == "ready"
    assert "fields" not in found


class Colour(Enum):
    RED = 1


def test_values_with_a_text_are_fields_and_others_are_not() -> None:
    found = said(
        event(
            at=Path("/tmp"),
            raw=b"\xffa",
            error=OSError(28, "full"),
            destination=Queue("q"),
            state=Colour.RED,
            large=2**70,
            never=float("nan"),
            headers={"a": [1, {"b": 2}]},
            call=lambda: None,
            thing=object(),
        )
    )
    assert found["fields"] == {
        "at": "/tmp",
        "raw": "\\xffa",
        "error": "[Errno 28] full",
        "destination": "queue:q",
        "state": "RED",
        "large": str(2**70),
        "never": "nan",
        "headers": {"a": [1, {"b": 2}]},
    }


def test_a_failure_is_a_field_of_the_same_line() -> None:
    found = said(event("it failed", log_failure=failed("why\nnot")), level=Level.SEVERE)
    assert found["message"] == "it failed"
    exception = found["exception"]
    assert exception["type"] == "builtins.ValueError"
    assert exception["message"] == "why\nnot"
    assert "Traceback" in exception["stacktrace"]


@pytest.mark.parametrize(
    "hiding",
    [
        event("a {passcode}", passcode=SECRET),
        event("a", headers={"login": "guest", "passcode": SECRET}),
        event("a", headers=[("login", "guest"), (b"passcode", SECRET.encode())]),
        event("a", deep={"b": {"c": [{"private_key": SECRET}]}}),
        event("a", frame=f"CONNECT\nlogin:guest\npasscode:{SECRET}\n\n"),
        event("a", frame=f"CONNECT\npasscode:{SECRET}\n".encode()),
        event("{name}: {value}", name="passcode", value=SECRET),
        event("password={value}", value=SECRET),
        event("a", log_failure=failed(f"password='{SECRET}'")),
        event("a", error=ValueError(f"password='{SECRET}'")),
    ],
)
def test_a_secret_is_in_no_field(hiding: dict[str, Any]) -> None:
    assert SECRET not in object_of(hiding, Level.INFO, Redaction())


@given(st.text(min_size=8).filter(lambda text: "*" not in text), st.text(), st.text())
def test_a_known_secret_is_nowhere(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    found = said(event("{text}", text=text, inside=[{text: text}], log_namespace=text), secret)
    assert secret.strip() == "" or secret not in json.dumps(found, ensure_ascii=False)


_VALUES = st.recursive(
    st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3),
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=10), _VALUES, max_size=5), st.text())
def test_any_event_is_one_object(fields: dict[str, Any], format: str) -> None:
    found = said({**fields, "log_format": format, "log_time": 0.0})
    assert {"time", "level", "logger", "message"} <= set(found)


def test_an_event_cannot_fill_the_disk() -> None:
    many = {f"field{number}": "x" * 20_000 for number in range(1_000)}
    endless: dict[str, Any] = {}
    endless["again"] = endless
    line = object_of(event("{field0}", **many, endless=endless), Level.INFO, Redaction())
    assert len(line) < 40_000
    assert json.loads(line)["fields"]["left_out"] > 900


def test_an_event_of_many_lines_is_an_object_for_each() -> None:
    lines = objects_of(["one", "t\nwo", SECRET], event(lines=[]), Level.FINE, Redaction([SECRET]))
    assert [json.loads(line)["message"] for line in lines.split("\n")] == [
        "one",
        "t\nwo",
        "********",
    ]


def test_what_the_starter_is_told() -> None:
    assert TEXT.notice("low", Level.WARNING) == "warning: low"
    assert TEXT.notice("bad", Level.SEVERE) == "bad"
    found = json.loads(JSON.notice("low\npasscode:abcdef", Level.WARNING))
    assert (found["level"], found["message"]) == ("WARNING", "low\npasscode:********")
