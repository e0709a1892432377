"""What an operator sees of the broker and does to it."""
