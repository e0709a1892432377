"""Coroutines as tests, on the reactor of this process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final

import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import ensureDeferred

#: Seconds after which a test has hung, longer than one wait may last; on a busy machine one that has
#: not may take a good part of them.
_LONGEST_TEST: Final = 120.0

_clock: Any = reactor


def on_reactor(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """Run a coroutine as a test, for at most two minutes."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        async def bounded() -> None:
            await ensureDeferred(test(*args, **kwargs)).addTimeout(_LONGEST_TEST, _clock)

        return pytest_twisted.ensureDeferred(bounded)()

    return run
