"""What queues and topics share: names, properties, counts, changes."""
