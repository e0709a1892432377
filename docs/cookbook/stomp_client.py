"""A STOMP client for the cookbook, for any STOMP broker.

    python stomp_client.py PORT COMMAND WORD...

    send DESTINATION TEXT [NAME=VALUE...]     send a message with these headers, and wait for its RECEIPT
    receive DESTINATION [NAME=VALUE...]       print one message, and below it its own headers; NAME=VALUE go to SUBSCRIBE
    answer DESTINATION REPLIES                answer one request at REPLIES: the correlation-id is the first of its message-id trail

Needs ``pip install stomp.py`` and a broker on this machine that knows guest/guest.
"""

import queue
import sys

import stomp

#: Seconds that anything may take.
PATIENCE = 30
#: Headers that are STOMP's, a broker's or a bridge's, and tell nothing of the message.
COMMON = {
    "JMS_STOMP_BODY",
    "ack",
    "amqp-message-id",
    "auto-delete",
    "content-length",
    "content-type",
    "destination",
    "durable",
    "exclusive",
    "expires",
    "message-id",
    "persistent",
    "priority",
    "receipt",
    "redelivered",
    "subscription",
    "timestamp",
}


class Listener(stomp.ConnectionListener):
    def __init__(self):
        self.received = queue.Queue()

    def on_message(self, frame):
        self.received.put(frame)

    def on_receipt(self, frame):
        self.received.put(frame)

    def on_error(self, frame):
        self.received.put(frame)

    def on_disconnected(self):
        self.received.put(None)

    def next(self, what):
        try:
            frame = self.received.get(timeout=PATIENCE)
        except queue.Empty:
            sys.exit(f"{what} did not come within {PATIENCE} seconds")
        if frame is None:
            sys.exit("the broker closed the connection")
        if frame.cmd == "ERROR":
            sys.exit(f"the broker says: {frame.headers.get('message')}")
        return frame


def receive(connection, listener, destination, headers):
    # RabbitMQ shares a queue between connections only if each of them says so; other brokers do not
    # mind.
    durable = (
        {"durable": "true", "auto-delete": "false", "exclusive": "false"}
        if destination.startswith("/queue/")
        else {}
    )
    connection.subscribe(
        destination, id="1", ack="client-individual", headers={**durable, **headers}
    )
    message = listener.next(f"a message from {destination}")
    connection.ack(message.headers["ack"])
    return message


def send(connection, listener, destination, text, headers):
    connection.send(destination, text, headers={"persistent": "true", "receipt": "sent", **headers})
    listener.next("the receipt")


def main(port, command, destination, *words):
    listener = Listener()
    # RabbitMQ has virtual hosts, and the one it comes with is "/"; text is sent as text, without
    # its length.
    connection = stomp.Connection12(
        [("127.0.0.1", int(port))], vhost="/", auto_content_length=False
    )
    connection.set_listener("", listener)
    connection.connect("guest", "guest", wait=True)
    if command == "send":
        send(
            connection,
            listener,
            destination,
            words[0],
            dict(word.split("=", 1) for word in words[1:]),
        )
    elif command == "receive":
        message = receive(
            connection, listener, destination, dict(word.split("=", 1) for word in words)
        )
        print(message.body)
        for name in sorted(set(message.headers) - COMMON):
            print(f"  {name}: {message.headers[name]}")
    elif command == "answer":
        request = receive(connection, listener, destination, {})
        first = request.headers["HORNETQ_BRIDGE_MSG_ID_LIST"].split(",")[0]
        send(
            connection,
            listener,
            words[0],
            f"an answer to: {request.body}",
            {"correlation-id": first},
        )
        print(f"answered the request {request.body!r}")
    else:
        sys.exit(f"there is no command {command}")
    connection.disconnect(receipt="bye")


main(*sys.argv[1:])
