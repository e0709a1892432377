"""Drivers: real STOMP clients, each in its own language, that do what they are told line by line.

A driver reads requests from its standard input and answers each on its standard output, one JSON
object a line. So every scenario is written once, in Python, and every client does it with its own
code. What a driver must understand, by ``verb``; ``connection`` names one of the driver's
connections, and every frame asks for a receipt and waits for it where the client can:

``connect``
    ``host``, ``port``, ``version`` (the only one to offer), ``login``, ``passcode``, ``client_id``
    (or null), ``tls`` (null, or the paths ``ca``, ``certificate``, ``key``). Answers
    ``{"ok": {"version": ...}}`` with what the server chose.
``subscribe``, ``unsubscribe``
    ``destination``, ``id``, ``headers``; ``subscribe`` also has ``ack``.
``send``
    ``destination``, ``body`` (hexadecimal), ``headers``, ``transaction`` (or null).
``receive``
    ``seconds``. Answers ``{"ok": {"number": n, "headers": {...}, "body": hexadecimal}}``, or
    ``{"ok": null}`` when nothing came in time.
``ack``
    ``number`` of the message as told by ``receive``, ``transaction`` (or null).
``begin``, ``commit``, ``abort``
    ``transaction``.
``disconnect``
    Ends the connection in the client's own orderly way.

What fails is answered by ``{"error": "what the client said"}``.
"""
