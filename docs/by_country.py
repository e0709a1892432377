"""A link's message transformer: orders go where their country says.

The property that says so is removed; a test order goes nowhere.
"""

from gateway.messaging.transformer import MessageTransformer


class ByCountry(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        if message.properties.get("test") is True:
            self.no_transfer()
            return message
        country = message.properties.get("country")
        if country is None:
            return message
        # A ref-name of the bridge's file, such as orders-fr.
        self.branch_to(f"{properties['prefix']}{country.lower()}")
        order = message.copy()
        del order.properties["country"]
        return order
