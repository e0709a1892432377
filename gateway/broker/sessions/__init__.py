"""The broker behind the seam: connections, sessions and consumers.

And what holds senders back.
"""
