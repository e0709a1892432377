"""Why the gateway does not start or has ended, and its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

#: The command line, a setting or a file of the instance is wrong; nothing was started.
EXIT_REFUSED: Final = 2
#: The store failed while the gateway ran.
EXIT_STORE_FAILED: Final = 3


class StartRefused(Exception):
    """The gateway does not start.

    :param lines: what is wrong, one line each, to be shown to the operator.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)

    def shown(self) -> None:
        """Note that the lines have been shown; from now on ``str`` refers to them."""
        self.args = ("not started, for the reason above",)


def exit_with(code: int) -> None:
    """End the process at once, when all that was printed is out."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
