"""``imqbridgemgr create bridge`` and ``destroy bridge``.

Owns what they send and print. What a definition may be, the service knows.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.commands import Command, Question, request
from gateway.admin.cli.render import listed, table


def _create(client: AdminClient, options: Namespace) -> Any:
    document = ""
    if options.document:
        try:
            document = Path(options.document).read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise AdminError(f"{options.document}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise AdminError(
                f"{options.document}: expected text in UTF-8; copy a file of another encoding to the gateway, and give -o xmlurl=PLACE"
            ) from None
    return client.ask(
        "POST",
        "/v1/definitions",
        {"name": options.bridge, "properties": options.properties, "document": document},
    )


def _created(options: Namespace, answer: Any) -> Iterator[str]:
    if answer["problem"]:
        yield f"The bridge is created, and {answer['state']}: {answer['problem']}"
    else:
        yield f"Successfully created the bridge; it is {answer['state']}."


def _which(options: Namespace) -> Sequence[str]:
    properties = [listed(list(options.properties.items()))] if options.properties else []
    return [table(["Bridge Name"], [[options.bridge]]), *properties]


#: By subcommand and argument.
DEFINITION_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("create", "bridge"): Command(
        title="Creating the bridge:",
        subject=_which,
        ask=_create,
        render=_created,
        needs=("-bn",),
        may=("-xml", "-o"),
    ),
    ("destroy", "bridge"): Command(
        title="Destroying the bridge:",
        subject=_which,
        question=lambda options: Question(
            "Are you sure you want to destroy this bridge?",
            "The bridge was not destroyed.",
            "Its settings go. Its log files and the record of its transactions stay.",
        ),
        ask=request("DELETE", "/v1/definition", name="bridge"),
        done="Successfully destroyed the bridge.",
        needs=("-bn",),
    ),
}
