"""JMS bridges: links that move messages from one provider to another."""
