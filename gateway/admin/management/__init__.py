"""Requests to manage the broker that clients send as messages.

They are in Artemis's words. What is asked is done by the same functions as the commands' and the console's requests, by the same
roles, and with the same lines of the audit.
"""
