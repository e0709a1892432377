"""The broker behind the seam: connections, sessions, consumers, and what holds senders back."""
