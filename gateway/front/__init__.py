"""Other brokers behind the gateway, which then keeps nothing itself."""
