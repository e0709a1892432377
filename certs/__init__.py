"""Certificates for TLS: an authority of one's own, server and client certificates, contexts,
expiry, and the ``imqkeytool`` command.

A leaf: it imports nothing else of this project, and is told where the files are.
"""
