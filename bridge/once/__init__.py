"""Links that transfer each message once and only once."""
