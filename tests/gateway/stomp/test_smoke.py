from tests.gateway.stomp.client import Server
from tests.gateway.stomp.recording import message
def test_all() -> None:
    s = Server(); c = s.connected()
    c.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\nreceipt:r1\n\n")
    print(c.heard())
    c.consumer().push(message())
    print(c.transport.value()); print(c.heard())
    c.say("ACK\nid:1-1\nreceipt:r2\n\n", "SEND\ndestination:/queue/b\n\nhey", "SEND\ndestination:/queue/b\nreceipt:x\n\nhey","DISCONNECT\nreceipt:bye\n\n")
    c.drain()
    print(c.heard()); c.drain(); print(c.transport.is_closed, s.provider.log)
