"""Names that the folder of a Delta Lake table may have.

Owns what delta-rs reads otherwise than it is written. Needs neither Spark nor delta-rs, so that a job
refuses a name before it starts either.
"""

from __future__ import annotations

import re
from typing import Final

from pipeline.errors import PipelineError

_ENCODED: Final = re.compile("%[0-9A-Fa-f]{2}")
#: Control characters, what is read as a slash, and bytes that are no UTF-8.
_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
#: In an address also what ends the path, and what XML cannot have or reads as the end of a line.
_OF_ADDRESSES: Final = re.compile("[#?\x80-\x9f\u2028\u2029]")
_ADDRESS: Final = re.compile("(?!file:)[a-zA-Z][a-zA-Z0-9+.-]+:")


def unfit(path: str) -> str | None:
    """Return what a path has and the path of a table cannot have.

    :param path: of a folder on this machine, or its address.
    :returns: None where a table can be there.
    """
    if _ENCODED.search(path):
        return "% and two hexadecimal digits"
    found = _CHARACTERS.search(path)
    if found is None and _ADDRESS.match(path):
        found = _OF_ADDRESSES.search(path)
    return None if found is None else f"the character {_shown(found[0])}"


def check_name(path: str) -> None:
    """Check that a folder can be that of a table.

    :param path: as :func:`unfit` takes it.
    :raises PipelineError: it cannot.
    """
    what = unfit(path)
    if what is not None:
        raise PipelineError(
            f"{_shown(path)} cannot be the folder of a table: expected a name without {what}, which delta-rs does not read as it is written"
        )


def _shown(text: str) -> str:
    """A text in one line, with nothing that a terminal obeys or cannot show."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
