"""Message selectors (JMS 1.1, section 3.8.1)."""
