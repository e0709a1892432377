"""How work is done on the reactor: clocks, Deferreds, turns.

A leaf: it imports nothing else of this project, and knows nothing of what the work is.
"""
