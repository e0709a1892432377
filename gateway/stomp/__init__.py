"""STOMP clients: their frames, sessions and connections."""
