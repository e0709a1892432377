"""Lines of the journal, made of what writers hand over.

Owns how fields become JSON and what is folded on the way. Runs on the journal's thread; knows
nothing of files.

Beside the names of :data:`~gateway.journal.schema.FIELDS` a writer may use one more: ``numbers``,
with ``prefix``, is what becomes ``runs``. A value that is callable is called, so that what takes
long is done here. ``sizes`` and ``timestamps`` that are all the same become the field of the
singular.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from gateway.journal.naming import runs_of
from gateway.journal.schema import VERSION

#: Fields with a value for each message, and the field where all have the same one.
_FOLDED: Final = (("sizes", "size"), ("timestamps", "timestamp"))

#: What escapes all but ASCII writes any text, also one that is not Unicode.
_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Lines:
    """Makes the lines of one run.

    :param run: as :func:`~gateway.journal.schema.run_name` gives it. :param instance: the
        gateway's.
    """

    def __init__(self, run: str, instance: str) -> None:
        self._head: Final = f'{{"v":{VERSION},"run":{_encode(run)},"line":'
        self._instance: Final = f',"instance":{_encode(instance)}'

    def line(self, number: int, fields: Mapping[str, object]) -> bytes:
        """One line, with its line feed.

        :param fields: ``time`` among them.
        :raises TypeError, ValueError: a value is none of JSON's. What a callable raises goes
            through.
        """
        said: dict[str, object] = {}
        for name, value in fields.items():
            if callable(value):
                value = value()
            if name == "numbers":
                if value is not None:
                    said["runs"] = runs_of(value)  # type: ignore[arg-type]
            elif (
                value is not None and value != "" and value != () and value != [] and name != "time"
            ):
                said[name] = value
        for many, one in _FOLDED:
            values = said.get(many)
            if isinstance(values, list) and values.count(values[0]) == len(values):
                del said[many]
                said[one] = values[0]
        rest = _encode(said)
        return f'{self._head}{number},"time":{fields["time"]}{self._instance}{"," if said else ""}{rest[1:]}\n'.encode(
            "ascii"
        )
