"""An administrator of a stepped broker."""

from __future__ import annotations

from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.broker.administration import BrokerAdministration
from tests.gateway.broker.stepping import Stepped

T = TypeVar("T")


def administration(stepped: Stepped) -> BrokerAdministration:
    return BrokerAdministration(stepped.provider, lambda: ())


def outcome(stepped: Stepped, asked: Deferred[T]) -> T:
    """What comes of it once reactor and disk have done all there is; raises what it fails with."""
    results: list[T | Failure] = []
    asked.addBoth(results.append)
    stepped.settle()
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    assert not isinstance(result, Failure)
    return result
