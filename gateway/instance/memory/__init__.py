"""Memory: what the machine has, and what this process lets its clients hold."""
