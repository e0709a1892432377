"""Errors for users of the data source, of one line each.

The line names the option, or the broker and the destination.

Owns the sentences' form only. No passcode, no body and no header's value is ever part of one.
"""

from __future__ import annotations

from pipeline.errors import PipelineError


class OptionError(PipelineError):
    """An option is missing, unknown, or has no value that it may have.

    :param option: its name, as it is documented.
    :param problem: what is wrong, and what was expected.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.option, self.problem)


class BrokerError(PipelineError):
    """The broker refuses or does not answer; trying again at once is no use."""


class ConnectionLost(BrokerError):
    """The connection is gone, or was never there, for a reason that may pass."""


class StagingError(PipelineError):
    """The folder for staged messages cannot be used, or is another query's."""
