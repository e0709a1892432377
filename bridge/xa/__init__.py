"""Transactions over two resource managers: the coordinator, its decision log, recovery."""
