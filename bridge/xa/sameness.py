"""Whether two sessions have one resource manager, as their providers know.

Owns the question. The name of a resource manager cannot tell, as one name may lead to several
brokers; nor can an earlier answer, as a connection may lead to another broker meanwhile. So it is
asked for each transaction.
"""

from __future__ import annotations

from twisted.logger import Logger

from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import XAResource


async def have_one_rm(one: XAResource, other: XAResource, log: Logger) -> bool:
    """Whether they have the same. :param other: was asked something before. :returns: False where
    nobody knows, as two branches are always right.
    """
    try:
        return await one.is_same_rm(other)
    except MessagingError as error:
        log.debug(
            "Whether two sessions have one resource manager is not known, so each has a branch of its own: {error}",
            error=error,
        )
        return False
