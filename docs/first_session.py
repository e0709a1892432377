"""A first session: send a message to a queue, receive it, acknowledge it.

Needs ``pip install stomp.py`` and a gateway on this machine; another port can be given as the
argument.
"""

import queue
import sys

import stomp

port = int(sys.argv[1]) if len(sys.argv) > 1 else 7672
received = queue.Queue()


class Listener(stomp.ConnectionListener):
    def on_message(self, frame):
        received.put(frame)

    def on_error(self, frame):
        print("the gateway says:", frame.headers["message"], file=sys.stderr)


connection = stomp.Connection12([("127.0.0.1", port)])
connection.set_listener("first session", Listener())
connection.connect("guest", "guest", wait=True)

connection.send("/queue/greetings", "hello", headers={"language": "en"})
connection.subscribe(
    "/queue/greetings", id="1", ack="client", headers={"selector": "language = 'en'"}
)

message = received.get(timeout=10)
connection.ack(message.headers["ack"])
print("received:", message.body, "from", message.headers["destination"])
connection.disconnect()
