"""Why a link that transfers once does not go on with a batch.

Owns these errors. What follows from them is the link's to say.
"""

from __future__ import annotations

from twisted.python.failure import Failure

from bridge.link.errors import TargetLost
from gateway.messaging import xa
from gateway.messaging.errors import MessagingError, OutcomeUnknown, ProviderUnavailable, XAError


def not_begun(failure: Failure) -> TargetLost:
    """Why the target's session could not begin a branch."""
    error = failure.value
    return target_lost(
        error
        if isinstance(error, MessagingError)
        else ProviderUnavailable(f"{type(error).__name__}: {error}")
    )


def not_rolled_back(ref_name: str) -> ProviderUnavailable:
    """A resource manager has not rolled a branch back, and may hold it."""
    return ProviderUnavailable(
        f"the resource manager of connection-factory {ref_name} has not rolled a transaction back, and is asked again"
    )


def target_lost(error: MessagingError) -> TargetLost:
    """It was the target, whatever it said; nothing has arrived there."""
    return error if isinstance(error, TargetLost) else TargetLost(error, sent=False)


def is_loss(error: MessagingError) -> bool:
    """Whether a resource manager is gone, rather than unwilling."""
    return isinstance(error, ProviderUnavailable | OutcomeUnknown) or (
        isinstance(error, XAError) and error.code == xa.XAER_RMFAIL
    )
