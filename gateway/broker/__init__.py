"""The embedded durable broker, a messaging provider.

It is behind the seam of ``gateway.messaging.provider``.
"""
