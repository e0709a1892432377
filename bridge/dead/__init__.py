"""What a link has given up: dead messages and the queues they go to."""
