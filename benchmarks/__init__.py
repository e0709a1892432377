"""``make bench``: the gateway, ActiveMQ and RabbitMQ under one STOMP load.

Owns the load, the servers it starts and the table it prints. It knows the servers from outside
only: their command lines and STOMP.
"""
