"""Waiting messages are handed to consumers, and delivered again."""
