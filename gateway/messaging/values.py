"""The value types of JMS properties, map entries and stream items (JMS 1.1, sections 3.5.4 and 3.11.3).

Python has fewer number types than Java, and a bridge must give each back as it came. A plain ``int`` is a Java long, a plain ``float``
a double; the others are subclasses, so that they compute as numbers and still know what they are.
"""

from __future__ import annotations

from typing import TypeAlias


class Byte(int):
    """A Java ``byte``, -128 to 127."""

    __slots__ = ()


class Short(int):
    """A Java ``short``, 16 bits."""

    __slots__ = ()


class Int(int):
    """A Java ``int``, 32 bits."""

    __slots__ = ()


class Float(float):
    """A Java ``float``, 32 bits."""

    __slots__ = ()


class Char(str):
    """A Java ``char``, one UTF-16 unit; in maps and streams only."""

    __slots__ = ()


#: ``bytes`` and :class:`Char` appear in map and stream bodies only, ``None`` is Java's null.
Value: TypeAlias = bool | int | float | str | bytes | None
