"""The subcommand ``why`` of both programs, and its answers.

Owns titles and order. What holds messages back, the admin service finds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.admin.cli.commands import Command, request
from gateway.admin.cli.render import Json, moment, one_line


def answer_lines(answer: Json) -> Iterator[str]:
    """Yield the lines of an answer: causes, remedies, unknowns."""
    yield f"{one_line(answer['subject'])}:"
    yield ""
    causes = answer["causes"]
    if not causes:
        yield "   Nothing that is known holds it back."
        yield ""
    for number, cause in enumerate(causes, 1):
        yield f"{number:>2}  {cause['kind']}"
        yield f"    {one_line(cause['sentence'])}"
        if cause["since_ms"]:
            yield f"    Since {moment(cause['since_ms'])}."
        if cause["advice"]:
            yield f"    -> {one_line(cause['advice'])}"
        if cause["command"]:
            yield f"       {one_line(cause['command'])}"
        yield ""
    for text in answer["unknown"]:
        yield f"Not known: {one_line(text)}"
    if answer["unknown"]:
        yield ""


def _rendered(options: Namespace, answer: Any) -> Iterator[str]:
    yield from answer_lines(answer)


def _why(path: str, *parameters: str, needs: tuple[str, ...], **renamed: str) -> Command:
    return Command(
        title="Asking the broker specified by:",
        ask=request("GET", f"/v1/why/{path}", *parameters, **renamed),
        render=_rendered,
        needs=needs,
    )


#: ``why link`` of both programs.
WHY_LINK: Final = _why("link", "bridge", "link", needs=("-bn", "-ln"))
#: By subcommand and argument, of ``imqcmd``.
WHY: Final[Mapping[tuple[str, str], Command]] = {
    ("why", "dst"): _why("destination", "type", "name", needs=("-t", "-n")),
    ("why", "msg"): _why("message", "id", needs=("-id",)),
    ("why", "cxn"): _why("connection", "id", needs=("-id",)),
    ("why", "link"): WHY_LINK,
}
