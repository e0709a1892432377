"""Consumers of the embedded broker, and what each has outstanding."""
