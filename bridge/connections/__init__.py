"""Connection factories, and which connections links and dead message queues use."""
