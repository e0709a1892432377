"""The embedded broker's connections and sessions, and its flow control."""
