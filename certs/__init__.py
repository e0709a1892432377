"""The certificates of TLS, and the imqkeytool command.

An authority of the operator's own, server and client certificates, contexts, expiry.

A leaf: it imports nothing else of this project, and is told where the files are.
"""
