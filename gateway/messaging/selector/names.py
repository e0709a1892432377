"""Which names selectors can speak of.

JMS 1.1, sections 3.5.1 and 3.8.1.1.

Owns the rules for identifiers and the reserved words. A header of another protocol whose name
breaks them is not a JMS property.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

#: Words that are no identifiers, in any case of their letters.
RESERVED_WORDS: Final = frozenset(
    {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}
)

#: The header fields that a selector may refer to.
HEADER_FIELDS: Final = frozenset(
    {
        "JMSDeliveryMode",
        "JMSPriority",
        "JMSMessageID",
        "JMSTimestamp",
        "JMSCorrelationID",
        "JMSType",
    }
)

# Character.isJavaIdentifierStart and isJavaIdentifierPart, as general categories of Unicode.
_START: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_PART: Final = _START | {"Nd", "Mc", "Mn", "Cf"}
# Character.isIdentifierIgnorable: control characters that are not white space.
_IGNORABLE: Final = frozenset(
    map(chr, [*range(0x00, 0x09), *range(0x0E, 0x1C), *range(0x7F, 0xA0)])
)


def is_reserved(word: str) -> bool:
    """Whether this is a reserved word, in any case of its letters."""
    # Of "lıke", with the dotless i of Turkish, upper() makes LIKE too.
    return word.isascii() and word.upper() in RESERVED_WORDS


def is_identifier_start(character: str) -> bool:
    """Whether an identifier may begin with this character.

    Java's letters may, ``_`` and ``$`` among them.
    """
    return unicodedata.category(character) in _START


def is_identifier_part(character: str) -> bool:
    """Whether this character may stand in an identifier behind its first."""
    return unicodedata.category(character) in _PART or character in _IGNORABLE


@lru_cache(maxsize=4096)
def is_property_name(name: str) -> bool:
    """Whether a JMS property may have this name.

    A Java identifier that is not a reserved word.

    ``content-type`` is not one, because of its hyphen; ``type`` is one. Whether a name that begins
    with ``JMS`` may be set is for others to say.
    """
    if not name or is_reserved(name):
        return False
    if name.isascii() and name.isidentifier():
        return True
    return is_identifier_start(name[0]) and all(map(is_identifier_part, name[1:]))
