"""The XML configuration of a JMS bridge: where it is, what it must look like, and what it says."""
