"""Messaging providers for links, behind ``gateway.messaging.provider``.

Each package is the way to one kind of broker.
"""
