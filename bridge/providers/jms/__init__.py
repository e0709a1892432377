"""Any JMS or Jakarta Messaging provider, through its own client jars.

Behind the seam ``gateway.messaging.provider``.
"""
