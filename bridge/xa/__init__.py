"""Transactions over two resource managers: coordinator, log, recovery."""
