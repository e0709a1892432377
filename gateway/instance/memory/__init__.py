"""Memory: what the machine has, and what clients may hold of it."""
