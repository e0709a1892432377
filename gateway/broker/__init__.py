"""The embedded durable broker, a provider behind the seam of ``gateway.messaging.provider``."""
