"""Why a link, or its batch under way, does not go on.

Owns these errors. What follows from them is the link's and its pump's to decide.
"""

from __future__ import annotations

from gateway.messaging.errors import MessagingError


class LinkRefused(Exception):
    """The link cannot be started as configured.

    ``str`` says why, and the remedy.
    """


class LinkFailed(Exception):
    """The link has stopped by itself. ``str`` says why.

    :param link: its name.
    """

    def __init__(self, link: str, reason: str) -> None:
        super().__init__(f"link {link} has failed: {reason}")


class SourceLost(MessagingError):
    """The source's connection or consumer has ended; the next gets it again.

    :param cause: why.
    :param text: the sentence; without one it says that the source is lost.
    """

    def __init__(self, cause: MessagingError, text: str = "") -> None:
        super().__init__(text or f"source lost: {cause}")
        self.cause = cause


class TargetLost(MessagingError):
    """The target cannot be reached, or its connection has ended.

    :param cause: why.
    :param sent: whether what was being sent may have arrived.
    :param text: the sentence; without one it says that the target is lost.
    """

    def __init__(self, cause: MessagingError, sent: bool, text: str = "") -> None:
        super().__init__(text or f"target lost: {cause}")
        self.cause = cause
        self.sent = sent


#: A connection that has ended.
EndLost = SourceLost | TargetLost


class Refused(MessagingError):
    """The target is there and does not take what was sent.

    :param cause: why.
    :param index: the first message that it does not take; None where it does not say which.
    :param sent: whether others of the run may have arrived.
    """

    def __init__(self, cause: MessagingError, index: int | None, sent: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.index = index
        self.sent = sent


class BatchRefused(MessagingError):
    """A message alone was refused, or its transaction was rolled back.

    It is still at its source, and is tried again.

    :param cause: why.
    :param times: refusals so far.
    :param most: how often it is tried.
    """

    def __init__(self, cause: MessagingError, times: int, most: int) -> None:
        super().__init__(f"message refused, {times} of {most} times: {cause}")
        self.cause = cause


class NotDecided(MessagingError):
    """The decision could not be written, so everything was rolled back.

    It is tried again, as no message is at fault.

    :param cause: what the log's disk said.
    """

    def __init__(self, cause: MessagingError) -> None:
        super().__init__(f"no transaction can be decided: {cause}")
        self.cause = cause


class NotOnce(MessagingError):
    """These two providers cannot transfer a message once and only once.

    Neither by XA nor by duplicate ids.

    :param reason: what each lacks, and the remedy.
    """

    def __init__(self, link: str, reason: str) -> None:
        super().__init__(f"link {link} is transacted, and cannot be: {reason}")
