"""What frames mean: the state of a STOMP connection, its subscriptions, transactions, temporaries
and receipts. No sockets here.
"""
