"""Compare what the gateways of two trees do with the same scripts."""
