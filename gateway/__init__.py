"""The STOMP gateway, and the embedded broker that stands behind it."""

__version__ = "0.1.0"
