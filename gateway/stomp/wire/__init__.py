"""Octets to STOMP frames and back, without I/O. Imports the standard library only."""
