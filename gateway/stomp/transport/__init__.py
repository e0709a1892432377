"""STOMP over sockets: the Twisted protocols, their output and the wheel that times them."""
