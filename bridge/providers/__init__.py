"""Messaging providers for links: each package is the way to one kind of broker, behind
``gateway.messaging.provider``.
"""
