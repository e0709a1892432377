"""The words of JMS, which every part of the gateway and the bridge speaks.

A leaf: it imports nothing else of this project.
"""
