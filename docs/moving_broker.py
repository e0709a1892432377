"""A provider for a STOMP broker that moves.

The property ``variable`` names an environment variable that has its address.
"""

import os

from bridge.providers.stomp.options import StompAddress, StompOptions
from bridge.providers.stomp.provider import StompProvider


def provider(config, reactor):
    address = os.environ[config.properties["variable"]]
    return StompProvider(
        StompAddress.parse(address), StompOptions.from_properties(config.properties), reactor
    )
