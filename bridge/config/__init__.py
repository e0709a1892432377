"""The XML configuration of a JMS bridge: its place, form and meaning."""
