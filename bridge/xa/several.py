"""What a resource manager is called where one name may be that of several: of a connection factory
with ``multi-rm="true"``, or where two sessions turned out to have two.

Owns that form of the name, which is in the log, and how it is known again. Of such a name nobody
knows whether two connections have the same broker.
"""

from __future__ import annotations

import re
from typing import Final

_FORM: Final = re.compile(r" \((?:source|target|branch \d+)\)\Z")


def one_of_several(resource: str, which: str) -> str:
    """A name of its own for one of them. :param resource: the name of all. :param which: ``source``
    or ``target`` of a link, or ``branch`` and a number.
    """
    return f"{resource} ({which})"


def is_one_of_several(rm: str) -> bool:
    """Whether connections to what is called so may be to different resource managers."""
    return _FORM.search(rm) is not None
