"""Why a link that transfers once does not go on with a batch.

Owns these errors. What follows from them is the link's to say.
"""

from __future__ import annotations

from twisted.python.failure import Failure

from bridge.link.target import TargetLost
from gateway.messaging import xa
from gateway.messaging.errors import MessagingError, OutcomeUnknown, ProviderUnavailable, XAError


class BatchRefused(MessagingError):
    """A message that was sent alone was refused, or its transaction was rolled back: it is at its
    source still, and is tried again.

    :param cause: why. :param times: how often by now. :param most: how often it is tried.
    """

    def __init__(self, cause: MessagingError, times: int, most: int) -> None:
        super().__init__(f"message refused, {times} of {most} times: {cause}")
        self.cause = cause


class NotDecided(MessagingError):
    """The decision could not be written, so everything was rolled back: it is tried again, as no
    message is at fault.

    :param cause: what the log's disk said.
    """

    def __init__(self, cause: MessagingError) -> None:
        super().__init__(f"no transaction can be decided: {cause}")
        self.cause = cause


class NotOnce(MessagingError):
    """Between these two providers no message can be transferred once and only once: neither by XA,
    nor because the target remembers what it has.

    :param reason: what each lacks, and the remedy.
    """

    def __init__(self, link: str, reason: str) -> None:
        super().__init__(f"link {link} is transacted, and cannot be: {reason}")


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
