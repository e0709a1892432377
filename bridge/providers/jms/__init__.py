"""The seam ``gateway.messaging.provider`` over any JMS or Jakarta Messaging provider, through its
own client jars.
"""
