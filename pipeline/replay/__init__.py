"""Sending dead and archived messages again, each once."""
