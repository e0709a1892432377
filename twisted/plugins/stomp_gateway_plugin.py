"""Lets ``twistd`` find the gateway. Names its module by string, so that listing plugins loads
nothing of it.
"""

from twisted.application.service import ServiceMaker

stomp_gateway = ServiceMaker(
    "stomp-gateway",
    "gateway.tap",
    "STOMP gateway with an embedded durable broker",
    "stomp-gateway",
)
