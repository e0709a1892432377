"""What frames mean: a connection's state, subscriptions and transactions.

No sockets here.
"""
