"""Takeovers: real gateways over one PostgreSQL, of which the owner dies, hangs or gives up."""
