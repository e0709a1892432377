"""Takeovers among real gateways over one PostgreSQL."""
