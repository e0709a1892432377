"""A messaging provider over any STOMP broker.

:class:`~bridge.providers.stomp.provider.StompProvider` is what others use; ``address`` and
``options`` say where the broker is and how to treat it, ``dialect`` what it understands.
"""
