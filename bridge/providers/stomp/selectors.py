"""Selectors for brokers that see numbers as text.

STOMP has no types, so the properties of its messages are Strings to a broker. ActiveMQ reads such a
String as a number of the type that it is compared with, and a comparison with a whole number fails
if the text has a point. This module writes whole numbers as ``2.0``, with which both are compared
as what they are.
"""

from __future__ import annotations

import re
from typing import Final

# Strings and names first, so that no number is found inside of them.
_TOKEN: Final = re.compile(
    r"(?s)'(?:[^']|'')*'|[^\W\d][\w$.]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[lLfFdD]?|."
)
#: Above this a double does not tell neighbours apart.
_EXACT: Final = 1 << 53


def with_decimals(selector: str) -> str:
    """The same selector with its whole numbers written as decimals. One that divides is left as it
    is, since a quotient would change.
    """
    tokens = _TOKEN.findall(selector)
    if "/" in tokens:
        return selector
    return "".join(
        f"{token}.0" if token.isdecimal() and int(token) <= _EXACT else token for token in tokens
    )
