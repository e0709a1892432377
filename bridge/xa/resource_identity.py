"""Which sessions have one resource manager, and what one is called where its name leads to several.

The name of a resource manager does not tell whether two sessions have the same one: a name may lead
to several brokers, as that of a connection factory with ``multi-rm="true"`` does, and a connection
may lead to another broker later. So the providers are asked, for each transaction. Where sessions
of one name turn out to have several resource managers, each gets a name of its own, which is also
in the log.
"""

from __future__ import annotations

import re
from typing import Final

from twisted.logger import Logger

from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import XAResource

_ONE_OF_SEVERAL: Final = re.compile(r" \((?:source|target|branch \d+)\)\Z")


async def have_one_rm(one: XAResource, other: XAResource, log: Logger) -> bool:
    """Ask whether two sessions have the same resource manager.

    :param other: was asked something before.
    :returns: False where the providers do not know: two branches are always correct.
    """
    try:
        return await one.is_same_rm(other)
    except MessagingError as error:
        log.debug(
            "Whether two sessions have one resource manager is not known, so each has a branch of its own: {error}",
            error=error,
        )
        return False


def one_of_several(resource: str, which: str) -> str:
    """Return a name for one of several resource managers that have the same name.

    :param resource: that name. :param which: ``source`` or ``target`` of a link, or ``branch`` and
        a number.
    """
    return f"{resource} ({which})"


def is_one_of_several(rm: str) -> bool:
    """Whether connections to this name may lead to different resource managers."""
    return _ONE_OF_SEVERAL.search(rm) is not None
