"""A provider for a STOMP broker that moves: the environment variable that the property ``variable``
names has its address.
"""

import os

from bridge.providers.stomp.options import StompAddress, StompOptions
from bridge.providers.stomp.provider import StompProvider


def provider(config, reactor):
    address = os.environ[config.properties["variable"]]
    return StompProvider(
        StompAddress.parse(address), StompOptions.from_properties(config.properties), reactor
    )
