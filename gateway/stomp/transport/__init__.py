"""STOMP over sockets: Twisted protocols, their output and their timing."""
