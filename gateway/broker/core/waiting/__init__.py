"""Messages that wait: their order, and the memory that they take."""
