"""Queues, topics and subscriptions, and how each ends."""
