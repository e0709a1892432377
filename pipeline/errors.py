"""What operators are told when a job cannot do what was asked."""

from __future__ import annotations


class PipelineError(Exception):
    """A job cannot go on. The command shows it and exits with 2.

    ``str`` is one line: what was wrong, where, and what was expected.
    """
