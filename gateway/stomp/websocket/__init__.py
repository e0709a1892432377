"""WebSocket (RFC 6455) without sockets: octets in, octets out."""
