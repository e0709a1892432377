r"""Header blocks that come again with other values in some headers.

A producer repeats the names of its headers, in one order, and most of their values; what varies are
an order's number, a time, a trace. A :class:`Shape` is such a sequence of names, with the values of
those headers by which the meaning of a SEND changes. It is one regular expression, so that a block
of it is recognised, checked and taken apart in one step, and what was worked out for the first block
holds for all of them (``Shape.plan``).

Which names may vary is the caller's to say, by a :data:`Rule`. The lines of those that go out in
MESSAGE as they came are kept as they are, see :attr:`ShapedHead.lines`.

A block has a shape only where it is plain: names have no escapes and no blanks at their edges, no
name is repeated, lines end in LF. Values that are passed on are narrow in most
shapes: printable ASCII without backslash and colon, written alike in every version of STOMP. A shape
becomes *wide* when another value comes, such as a time of day with colons or a text in UTF-8; its
lines are brought into the form of 1.2 then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from gateway.stomp.wire.frame import Head, Version
from gateway.stomp.wire.head import read_head

#: Shapes that one parser keeps, and the octets of the largest block that gives one.
MOST_SHAPES: Final = 16
MOST_OCTETS: Final = 1024
#: No further than this is a block looked for: it would be looked for by each shape, over values of
#: any length, and where none is of any use, reading it costs less.
LONGEST: Final = 2 * MOST_OCTETS
#: What all shapes of one parser may come to: octets of names and of values that are the same, and
#: 32 for each header. One of these takes up to 17 octets in the regular expression, and two
#: microseconds to make, and no budget counts it: a client gets 100 KB and 12 ms at most.
MOST_TOGETHER: Final = 6144
_HEADER: Final = 32
#: A shape is made when this many blocks of it have come: to make one takes as long as reading twenty.
ENOUGH: Final = 4

# Shapes that are not made yet and are known by their hashes.
_SEEN: Final = 256
# How often there may be no room before all is forgotten. A producer with a few more shapes than
# there is room for goes on using those that are kept, where throwing out the oldest would keep none
# of them long enough to be used; one that has changed its ways is learnt in the end.
_REFUSED: Final = 4096

_V1_0: Final = Version.V1_0


class Varying(Enum):
    """What becomes of a header of SEND."""

    #: By another value the frame means something else.
    NEVER = "never"
    #: It is part of the message and goes out as it came.
    PASSED = "passed"
    #: It is about this frame, and is read for each.
    OWN = "own"
    #: It means nothing.
    IGNORED = "ignored"


#: By the name of a header, whether its value may vary within a shape.
Rule = Callable[[str], Varying]

#: What the protocol says of these; the rule is not asked.
_OWN: Final = frozenset(("content-length", "receipt", "transaction"))


def _role(name: str, rule: Rule) -> Varying:
    """What becomes of a header of SEND."""
    return Varying.OWN if name in _OWN else rule(name)


#: Values that are passed on: how they come where they are narrow, and any others, by version. None
#: can be matched in two ways, so nothing is tried twice.
_NARROW: Final = rb"[ !-9;-\[\]-~]*+"
_WIDE: Final = {
    Version.V1_0: rb"[^\n\r\0\\]*+",
    Version.V1_1: rb"[^\n\r\0\\]*+(?:\\[nc\\][^\n\r\0\\]*+)*+",
    Version.V1_2: rb"[^\n\r\0\\]*+(?:\\[nrc\\][^\n\r\0\\]*+)*+",
}
#: Values that are not passed on.
_UNREAD: Final = rb"[ -\[\]-~]*+"
#: 1.0 does not count blanks at the edges.
_TRIMMED: Final = rb"(?![ \t])%s(?<![ \t])"
_LENGTH: Final = rb"[0-9]{1,18}+"


class Shape:
    """The names of a header block, and the values that are always the same.

    :param headers: what one of its blocks says.
    :param wide: values that are passed on need not be narrow.
    """

    __slots__ = (
        "_groups",
        "_last",
        "_length",
        "_own",
        "_remembers",
        "_version",
        "count",
        "is_bare",
        "is_wide",
        "match",
        "overhead",
        "plan",
        "repeated",
    )

    def __init__(self, headers: dict[str, str], version: Version, rule: Rule, wide: bool) -> None:
        narrow = _TRIMMED % _NARROW if version is _V1_0 else _NARROW
        unread = _TRIMMED % _UNREAD if version is _V1_0 else _UNREAD
        value = narrow
        if wide:
            value = _TRIMMED % _WIDE[version] if version is _V1_0 else _WIDE[version]
        pattern = [b"SEND\n"]
        groups = 0
        self._version: Final = version
        self._length = 0
        self.is_wide: Final = wide
        #: The lines of a block that are passed on.
        self.count = 0
        # The groups that take the values of headers that each frame has for itself.
        self._own: Final[dict[str, int]] = {}
        #: The headers that all its blocks have, with their values.
        self.repeated: Final[dict[str, str]] = {}
        #: Octets of a block that are neither names nor values.
        self.overhead: Final = 6 + 2 * len(headers)
        runs: list[int] = []
        #: The header before this one is passed on, so that one group takes both.
        running = False
        ignores = False
        for name, text in headers.items():
            varying = _role(name, rule)
            if running and varying is not Varying.PASSED:
                pattern.append(b")")
                running = False
            label = re.escape(name.encode()) + b":"
            if varying is Varying.PASSED:
                if not running:
                    running = True
                    groups += 1
                    runs.append(groups)
                    pattern.append(b"(")
                self.count += 1
                pattern.append(label + value + b"\n")
            elif varying is Varying.NEVER:
                self.repeated[name] = text
                pattern.append(label + re.escape(text.encode()) + b"\n")
            elif name == "content-length":
                groups += 1
                self._length = groups
                pattern.append(label + b"(" + _LENGTH + b")\n")
            elif varying is Varying.OWN:
                ignores = True
                groups += 1
                self._own[name] = groups
                pattern.append(label + b"(" + unread + b")\n")
            else:
                ignores = True
                pattern.append(label + unread + b"\n")
        pattern.append(b")\n" if running else b"\n")
        self._groups: Final = tuple(runs)
        #: No header is the frame's own, beside ``content-length``.
        self.is_bare: Final = not self._own
        #: Finds one of its blocks at a place in octets: a match, or None.
        self.match: Final = re.compile(b"".join(pattern)).match
        # The head that came last; None where blocks differ that say the same.
        self._last: ShapedHead | None = None
        self._remembers: Final = not ignores
        #: Whatever the interpreter of its heads wants to find again at the next one.
        self.plan: object | None = None

    def head(self, found: re.Match[bytes], octets: int) -> ShapedHead | None:
        """Return the head of a block that `match` has found.

        The same object again where the block is the same as the last one. None if the block is not
        UTF-8.
        """
        groups = self._groups
        if len(groups) == 1:
            lines = found.group(groups[0])
        else:
            lines = b"".join([found.group(group) for group in groups])
        if self.is_wide:
            if not lines.isascii():
                try:
                    lines.decode()
                except UnicodeDecodeError:
                    return None
            if lines.count(b":") != self.count:
                lines = _escaped(lines)
        length = int(found.group(self._length)) if self._length else -1
        last = self._last
        if last is not None and length == last.content_length and lines == last.lines:
            last.is_repeated = True
            return last
        head = ShapedHead(self, lines, length, octets, found)
        if self._remembers:
            self._last = head
        return head

    def repeated_head(self, own: dict[str, str]) -> Head:
        """Return a head with the headers that all its blocks have, and those of one frame."""
        return Head("SEND", {**self.repeated, **own}, 0 if self._length else -1)

    def own(self, found: re.Match[bytes]) -> dict[str, str]:
        """Return the headers of a block that are the frame's own."""
        return {name: found.group(group).decode("ascii") for name, group in self._own.items()}

    def own_of(self, headers: dict[str, str]) -> dict[str, str]:
        """Return those of all headers of a block that are the frame's own."""
        return {name: headers[name] for name in self._own}

    def read(self, block: bytes) -> dict[str, str]:
        """Return all headers of a block that was found."""
        return read_head(block, self._version).headers

    def release(self) -> None:
        """Hold the last block, and not all that it was received with."""
        if self._last is not None:
            self._last.release()


def _escaped(lines: bytes) -> bytes:
    """Return header lines with the colons escaped that are in values."""
    parts: list[bytes] = []
    for line in lines.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        parts.append(b"%s:%s\n" % (name, value.replace(b":", b"\\c")))
    return b"".join(parts)


class ShapedHead(Head):
    """The head of a SEND whose block has a shape.

    Its ``headers`` are read when somebody asks for them.

    :param lines: those that are passed on, in the order they came.
    :param octets: of the block.
    :param found: where the block is.
    """

    __slots__ = ("_block", "_found", "is_repeated", "lines", "made", "octets", "shape")

    def __init__(
        self,
        shape: Shape,
        lines: bytes,
        content_length: int,
        octets: int,
        found: re.Match[bytes],
    ) -> None:
        self.command = "SEND"
        self._headers = None
        self.content_length = content_length
        self.shape: Final = shape
        self.lines: Final = lines
        #: Roughly, what names and values take.
        self.octets: Final = octets - shape.overhead
        self._found: re.Match[bytes] | None = found
        self._block = b""
        #: The same block has come again.
        self.is_repeated = False
        #: Whatever the interpreter makes of it and wants to find again when it is repeated.
        self.made: object | None = None

    @property
    def headers(self) -> dict[str, str]:
        """All headers. From now on the octets that they came in are not held."""
        headers = self._headers
        if headers is None:
            self.release()
            headers = self._headers = self.shape.read(self._block)
        return headers

    def own_headers(self) -> dict[str, str]:
        """Those that are the frame's own, such as ``receipt``."""
        found = self._found
        return self.shape.own_of(self.headers) if found is None else self.shape.own(found)

    def release(self) -> None:
        """Hold the block and not all that it was found in."""
        if self._found is not None:
            self._block = self._found.group()
            self._found = None


class Shapes:
    """The shapes of the blocks that one parser reads.

    :param rule: which headers may vary.
    """

    __slots__ = ("_by_key", "_refused", "_rule", "_seen", "_together", "recent")

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        # By a hash of their names and of the values that are the same.
        self._by_key: dict[int, Shape] = {}
        self._seen: dict[int, int] = {}
        self._refused = 0
        self._together = 0
        #: The shape that was made or found last, to be tried first.
        self.recent: Shape | None = None

    def find(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """Find a block at `at` that has another shape than the recent one.

        Its shape is the recent one then.
        """
        recent = self.recent
        for shape in self._by_key.values():
            if shape is recent:
                continue
            found = shape.match(data, at, at + LONGEST)
            if found is not None:
                self.release()
                self.recent = shape
                return found
        return None

    def release(self) -> None:
        """Hold no octets but blocks until the next block is found."""
        if self.recent is not None:
            self.recent.release()

    def sight(self, block: bytes, head: Head, version: Version) -> None:
        """Count a block without a shape, and make one when enough have come.

        :param block: header block with its blank line, read without fault and within the limits.
        """
        headers = head.headers
        if (
            head.command != "SEND"
            or len(block) > MOST_OCTETS
            or 13 in block
            or block.count(b"\n") != len(headers) + 2
        ):
            return
        rule = self._rule
        says: list[str] = []
        wide = False
        for name, text in headers.items():
            says.append(name)
            varying = _role(name, rule)
            if varying is Varying.NEVER:
                says.append(text)
            if (
                ":" in name
                or "\\" in name
                or not name.isprintable()
                or name[0] == " "
                or name[-1] == " "
            ):
                # As a block has it, it is not what `headers` has; or consumers see it as another
                # name, which a line that is passed on may have.
                return
        key = hash(tuple(says))
        known = self._by_key.get(key)
        if known is not None:
            if known.is_wide or known.match(block) is not None:
                # The latter came in parts.
                return
            wide = True
        else:
            count = self._seen.get(key, 0) + 1
            if count < ENOUGH:
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen[key] = count
                return
            together = self._together + _size(says, headers)
            if len(self._by_key) >= MOST_SHAPES or together > MOST_TOGETHER:
                self._refused += 1
                if self._refused < _REFUSED:
                    return
                self.forget()
        shape = Shape(headers, version, rule, wide)
        if not wide:
            self._together += _size(says, headers)
        self.release()
        self._by_key[key] = self.recent = shape
        self._seen.pop(key, None)

    def forget(self) -> None:
        """Keep nothing: by other rules the same bytes are other heads."""
        self._by_key.clear()
        self._seen.clear()
        self._refused = 0
        self._together = 0
        self.recent = None


def _size(says: list[str], headers: dict[str, str]) -> int:
    """Roughly, what the shape comes to that has these names and values."""
    return sum(map(len, says)) + _HEADER * len(headers)
