"""A messaging provider over any AMQP 1.0 broker.

:class:`~bridge.providers.amqp.provider.AmqpProvider` is what others use; ``address`` and
``options`` say where the broker is and how to treat it, ``peers`` what it can do.

Qpid Proton, the protocol engine, comes with the extra ``[amqp]``. The modules ``options``,
``peers``, ``encoding``, ``mapping`` and ``refusals`` do not need it.

Section numbers in this package are those of OASIS AMQP 1.0.
"""
