"""Send numbered orders, or count those that arrived.

    python orders.py send PORT COUNT      send as many orders, 100 a second, each with a receipt
    python orders.py count PORT COUNT     take as many orders, and say which are missing or came twice

The sender repeats an order until it has the receipt. Each order has an id in ``_AMQ_DUPL_ID``, by
which the gateway drops an order that it has already.

Needs ``pip install stomp.py``.
"""

import logging
import queue
import sys
import time
import uuid
from collections import Counter

import stomp

QUEUE = "/queue/orders"
# That a gateway is away is no news here.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)


class Frames(stomp.ConnectionListener):
    def __init__(self):
        self.received = queue.Queue()

    def on_message(self, frame):
        self.received.put(frame)

    def on_receipt(self, frame):
        self.received.put(frame)

    def on_disconnected(self):
        self.received.put(None)


def connected(port):
    """Connect, as soon as there is a gateway to connect to."""
    while True:
        connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
        frames = Frames()
        connection.set_listener("", frames)
        try:
            connection.connect("guest", "guest", wait=True)
            return connection, frames.received
        except stomp.exception.StompException:
            time.sleep(0.2)


def send(port, count):
    run = uuid.uuid4()
    connection, received = connected(port)
    for number in range(1, count + 1):
        confirmed = None
        while confirmed is None:
            try:
                connection.send(
                    QUEUE,
                    f"order {number}",
                    headers={
                        "persistent": "true",
                        "receipt": str(number),
                        "_AMQ_DUPL_ID": f"{run}-{number}",
                    },
                )
                confirmed = received.get(timeout=10)
            except (stomp.exception.StompException, OSError, queue.Empty):
                pass
            if confirmed is None:
                connection, received = connected(port)
        time.sleep(0.01)
    print(f"{count} orders sent, each with its receipt")
    connection.disconnect()


def count(port, expected):
    connection, received = connected(port)
    connection.subscribe(QUEUE, id="1", ack="auto")
    orders = Counter()
    wait = 30
    while True:
        try:
            orders[received.get(timeout=wait).body] += 1
        except queue.Empty:
            break
        # All are here; whatever comes now came twice.
        wait = 30 if len(orders) < expected else 1
    missing = [n for n in range(1, expected + 1) if f"order {n}" not in orders]
    twice = [order for order, times in orders.items() if times > 1]
    print(f"{len(orders)} orders arrived, {len(missing)} missing, {len(twice)} twice")
    connection.disconnect()


what, port, orders = sys.argv[1:]
{"send": send, "count": count}[what](int(port), int(orders))
