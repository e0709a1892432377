"""``imqcmd doctor``: what an operator may have forgotten.

Owns what is printed of the findings, and the exit code. What is checked, the gateway says; that none
can be asked is a finding, too.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.admin.cli.client import AdminError
from gateway.admin.cli.commands import Command, Common
from gateway.admin.cli.render import one_line
from gateway.instance.problems import counted

#: Exit codes by the worst severity.
_CODES: Final = {"ok": 0, "warning": 1, "error": 2}


def _run(command: Command, common: Common, options: Namespace) -> int:
    try:
        client = common.client()
        common.say("Examining the broker specified by:")
        common.say()
        common.say_broker()
        found = client.get("/v1/doctor")["findings"]
    except AdminError as error:
        if error.code != "unreachable":
            raise
        found = [
            {
                "check": "service",
                "severity": "error",
                "text": error.text,
                "figure": "",
                "remedy": "systemctl status stomp-gateway",
            }
        ]
    for line in _lines(found):
        common.say(line)
    common.show_json({"findings": found})
    return max((_CODES[each["severity"]] for each in found), default=0)


def _lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    bad = [each for each in found if each["severity"] != "ok"]
    for each in bad:
        yield f"{each['severity'].upper()}  {one_line(each['check'])}: {one_line(each['text'])}"
        if each["figure"]:
            yield f"    {one_line(each['figure'])}"
        if each["remedy"]:
            yield f"    -> {one_line(each['remedy'])}"
        yield ""
    for each in found:
        if each["severity"] == "ok":
            figure = f" ({one_line(each['figure'])})" if each["figure"] else ""
            yield f"ok  {one_line(each['check'])}: {one_line(each['text'])}{figure}"
    errors = sum(each["severity"] == "error" for each in bad)
    yield ""
    yield f"{counted(errors, 'error')}, {counted(len(bad) - errors, 'warning')}."


#: By subcommand and argument.
DOCTOR: Final[Mapping[tuple[str, str], Command]] = {("doctor", ""): Command(run=_run)}
