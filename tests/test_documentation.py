"""The documentation builds without a warning, and what it shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.transformer import MessageTransformer
from gateway.transformer_loading import load_transformer
from tests.gateway_process import GatewayProcess

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


PAGES = [*DOCS.rglob("*.rst"), *ROOT.glob("*.rst"), ROOT / "benchmarks" / "README.rst"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_to_be_installed_is_there(page: Path) -> None:
    text = page.read_text()
    # No index has the package: it is installed from a checkout or a wheel, by a path.
    assert re.findall(r"pip install[^\n]*[ '\"]stomp-gateway\b[^\n]*", text) == []
    # A design note may say what was there before.
    assert page.parent.name == "design" or re.findall("(?i)jpype|stomp-gateway\\[jms", text) == []


@pytest.mark.process
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    built = run(
        sys.executable,
        "-m",
        "sphinx",
        "-n",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        tmp_path / "read",
        DOCS,
        tmp_path / "html",
    )
    assert (built.returncode, built.stderr) == (0, "")
    assert (
        "imq.bridge.stomp.tcp.port"
        in (tmp_path / "html" / "generated" / "settings.html").read_text()
    )


def test_the_readme_shows_the_first_session_as_it_is() -> None:
    shown = (
        (ROOT / "README.rst")
        .read_text()
        .split(".. code-block:: python\n")[1]
        .split("\n.. unseen: python\n")[0]
    )
    program = (DOCS / "first_session.py").read_text().splitlines()
    lines = [line.replace("7672", "port") for line in dedent(shown).strip().splitlines()]
    assert [line for line in lines if line not in program] == []


def test_the_first_session_works(start_gateway: Callable[..., GatewayProcess]) -> None:
    gateway = start_gateway()
    session = run(sys.executable, DOCS / "first_session.py", str(gateway.port))
    assert (session.returncode, session.stdout) == (0, "received: hello from /queue/greetings\n"), (
        session.stderr
    )


def test_the_transformer_works() -> None:
    transformer = load_transformer(
        "spelled_out:SpelledOut", "imq.bridge.stomp.messageTransformer", DOCS
    )
    entries = transformer.create_message(BodyType.MAP)
    entries.entries["weight"] = 12
    entries.entries["shade"] = "dark"
    transformed = transformer.transform(
        entries, True, None, MessageTransformer.SUN_MQ, MessageTransformer.STOMP, None
    )
    assert transformed is not None
    assert (transformed.body_type, transformed.text) == (BodyType.TEXT, "weight=12\nshade=dark\n")

    text = JMSMessage.of(
        Message(Headers(Queue("q"), body_type=BodyType.TEXT), b"as it is"), read_only=True
    )
    assert (
        transformer.transform(
            text, True, None, MessageTransformer.SUN_MQ, MessageTransformer.STOMP, None
        )
        is text
    )
