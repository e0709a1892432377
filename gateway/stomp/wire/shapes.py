r"""Header blocks that come again with other values in some headers.

A producer repeats the names of its headers, in one order; what varies are an order's number, a time,
a trace, and where it has several destinations, those. A :class:`Shape` is such a sequence of names.
It is one regular expression, so that a block of it is recognised, checked and taken apart in one
step.

Some headers change what a SEND means, as ``destination`` does. Their lines are looked up, as they
came, among those that have come in this shape: a :class:`Meaning` has what was worked out for the
first block with them (``Meaning.plan``). Which headers these are is the caller's to say, by a
:data:`Rule`. The lines of those that go out in MESSAGE as they came are kept as they are, see
:attr:`ShapedHead.lines`.

A block has a shape only where it is plain: names have no escapes and no blanks at their edges, no
name is repeated, lines end in LF. Values that are passed on are narrow in most
shapes: printable ASCII without backslash and colon, written alike in every version of STOMP. A shape
becomes *wide* when another value comes, such as a time of day with colons or a text in UTF-8; its
lines are brought into the form of 1.2 then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import groupby
from typing import Final

from gateway.stomp.wire.frame import Head, Version
from gateway.stomp.wire.head import read_head

#: Shapes that one parser keeps, and the octets of the largest block that gives one.
MOST_SHAPES: Final = 16
MOST_OCTETS: Final = 1024
#: No further than this is a block looked for: it would be looked for by each shape, over values of
#: any length, and where none is of any use, reading it costs less.
LONGEST: Final = 2 * MOST_OCTETS
#: Octets of memory that the shapes of one parser may take, and the shapes and their meanings
#: together. No budget counts them.
MOST_IN_SHAPES: Final = 40 << 10
MOST_KEPT: Final = 80 << 10
#: What a shape takes, beside what each header of it and each octet of a name does.
_SHAPE: Final = 700
_HEADER: Final = 250
_NAME: Final = 17
#: What a meaning takes with its plan, beside what each octet of its lines does: there are the lines,
#: the destination's name, and the blocks that encoders remember of it. Where SEND names several
#: destinations there are as many of the latter as it has commas, and one.
_MEANING: Final = 700
_LINE: Final = 5
#: A shape is made when this many blocks of it have come: to make one takes as long as reading twenty.
ENOUGH: Final = 4
#: Where there is no room for a shape this many of its blocks must have come, and for a meaning so
#: many blocks whose meaning is not kept; then all others are forgotten. A producer with a few more
#: than there is room for goes on using those that are kept, where throwing out the oldest would keep
#: none of them long enough to be used; one that has changed its ways is learnt in the end.
CROWDED: Final = 1024

# Shapes that are not made yet and are known by their hashes.
_SEEN: Final = 256

_V1_0: Final = Version.V1_0


class Varying(Enum):
    """What becomes of a header of SEND."""

    #: By another value the frame means something else.
    MEANING = "meaning"
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


#: Values without backslash, NUL and ends of lines: what changes the meaning where the shape is not
#: wide. Said by what is taken, which is found faster than what is not.
_UNESCAPED: Final = rb"[\x01-\t\x0b\x0c\x0e-\[\]-\xff]*+"
#: Values that are kept as they came: narrow, and any, by version. None can be matched in two ways, so
#: nothing is tried twice.
_NARROW: Final = rb"[ !-9;-\[\]-~]*+"
_WIDE: Final = {
    Version.V1_0: _UNESCAPED,
    Version.V1_1: rb"%s(?:\\[nc\\]%s)*+" % (_UNESCAPED, _UNESCAPED),
    Version.V1_2: rb"%s(?:\\[nrc\\]%s)*+" % (_UNESCAPED, _UNESCAPED),
}
#: Values of the frame's own headers and of headers that mean nothing.
_UNREAD: Final = rb"[ -\[\]-~]*+"
#: 1.0 does not count blanks at the edges.
_TRIMMED: Final = rb"(?![ \t])%s(?<![ \t])"
_LENGTH: Final = rb"[0-9]{1,18}+"


class Shape:
    """The names of a header block, in their order.

    :param names: plain ones.
    :param wide: values need not be narrow.
    """

    __slots__ = (
        "_own",
        "_version",
        "count",
        "is_bare",
        "is_wide",
        "last",
        "latest",
        "length",
        "match",
        "meanings",
        "meant",
        "meant_at",
        "overhead",
        "passed",
        "passed_at",
        "remembers",
    )

    def __init__(self, names: Sequence[str], version: Version, rule: Rule, wide: bool) -> None:
        passed_value = _WIDE[version] if wide else _NARROW
        meant_value = _WIDE[version] if wide else _UNESCAPED
        unread = _UNREAD
        if version is _V1_0:
            passed_value = _TRIMMED % passed_value
            meant_value = _TRIMMED % meant_value
            unread = _TRIMMED % unread
        pattern = [b"SEND\n"]
        self._version: Final = version
        self.is_wide: Final = wide
        #: The lines of a block that are passed on.
        self.count = 0
        #: Octets of a block that are neither names nor values.
        self.overhead: Final = 6 + 2 * len(names)
        # Places among the groups of the expression: those of lines, the one of content-length or
        # -1, and those of the values of other headers that each frame has for itself.
        meant: list[int] = []
        passed: list[int] = []
        self.length = -1
        self._own: Final[dict[str, int]] = {}
        groups = 0
        ignores = False
        # All lines in a row that are kept are one group.
        for varying, row in groupby(names, lambda name: _role(name, rule)):
            labels = [(name, re.escape(name.encode()) + b":") for name in row]
            if varying is Varying.OWN:
                for name, label in labels:
                    if name == "content-length":
                        self.length = groups
                        pattern.append(label + b"(" + _LENGTH + b")\n")
                    else:
                        self._own[name] = groups
                        pattern.append(label + b"(" + unread + b")\n")
                    groups += 1
            elif varying is Varying.IGNORED:
                ignores = True
                pattern += [label + unread + b"\n" for _, label in labels]
            else:
                if varying is Varying.PASSED:
                    places, value = passed, passed_value
                    self.count += len(labels)
                else:
                    places, value = meant, meant_value
                places.append(groups)
                groups += 1
                lines = b"".join([label + value + b"\n" for _, label in labels])
                pattern.append(b"(" + lines + b")")
        pattern.append(b"\n")
        for places in (meant, passed):
            if not places:
                places.append(groups)
                groups += 1
                pattern.append(b"()")
        self.meant: Final = tuple(meant)
        self.passed: Final = tuple(passed)
        # The only one of each, or -1.
        self.meant_at: Final = meant[0] if len(meant) == 1 else -1
        self.passed_at: Final = passed[0] if len(passed) == 1 else -1
        #: No header is the frame's own, beside ``content-length``.
        self.is_bare: Final = not self._own
        #: Finds one of its blocks at a place in octets: a match, or None.
        self.match: Final = re.compile(b"".join(pattern)).match
        #: By their lines, in the order they stand in the block.
        self.meanings: Final[dict[bytes, Meaning]] = {}
        #: The one of them that came last.
        self.latest: Meaning | None = None
        #: The head that came last with one of them; None where blocks differ that say the same.
        self.last: ShapedHead | None = None
        self.remembers: Final = self.is_bare and not ignores

    def own(self, found: re.Match[bytes]) -> dict[str, str]:
        """Return the headers of a block that are the frame's own."""
        return {name: found.group(at + 1).decode("ascii") for name, at in self._own.items()}

    def own_of(self, headers: dict[str, str]) -> dict[str, str]:
        """Return those of all headers of a block that are the frame's own."""
        return {name: headers[name] for name in self._own}

    def read(self, block: bytes) -> dict[str, str]:
        """Return all headers of a block that was found, or of some of its lines."""
        return read_head(block, self._version).headers

    def release(self) -> None:
        """Hold the last block, and not all that it was received with."""
        if self.last is not None:
            self.last.release()


class Meaning:
    """What those blocks of a shape mean that say the same.

    That is, but for the headers that may vary.

    :param lines: the header lines that say it.
    """

    __slots__ = ("lines", "plan", "shape")

    def __init__(self, shape: Shape, lines: bytes) -> None:
        self.shape: Final = shape
        self.lines: Final = lines
        #: Whatever the interpreter of its heads wants to find again at the next one.
        self.plan: object | None = None

    def head(self, own: dict[str, str]) -> Head:
        """Return a head with these headers, and those of one frame."""
        shape = self.shape
        said = shape.read(b"SEND\n%s\n" % self.lines)
        return Head("SEND", {**said, **own}, -1 if shape.length < 0 else 0)


def _joined(groups: tuple[bytes, ...], places: tuple[int, ...]) -> bytes:
    """Return the lines that some groups have taken."""
    return b"".join([groups[place] for place in places])


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
    :param octets: roughly, what names and values take.
    :param found: where the block is.
    """

    __slots__ = ("_block", "_found", "is_repeated", "lines", "made", "meaning", "octets")

    def __init__(
        self,
        meaning: Meaning,
        lines: bytes,
        content_length: int,
        octets: int,
        found: re.Match[bytes],
    ) -> None:
        self.command = "SEND"
        self._headers = None
        self.content_length = content_length
        self.meaning: Final = meaning
        self.lines: Final = lines
        self.octets: Final = octets
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
            headers = self._headers = self.meaning.shape.read(self._block)
        return headers

    def own_headers(self) -> dict[str, str]:
        """Those that are the frame's own, such as ``receipt``."""
        found = self._found
        shape = self.meaning.shape
        return shape.own_of(self.headers) if found is None else shape.own(found)

    def release(self) -> None:
        """Hold the block and not all that it was found in."""
        if self._found is not None:
            self._block = self._found.group()
            self._found = None


class Shapes:
    """The shapes of the blocks that one parser reads.

    :param rule: which headers may vary.
    """

    __slots__ = (
        "_by_key",
        "_in_meanings",
        "_in_shapes",
        "_passed_over",
        "_rule",
        "_seen",
        "recent",
    )

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        # By a hash of their names.
        self._by_key: dict[int, Shape] = {}
        self._seen: dict[int, int] = {}
        # What they take in memory.
        self._in_shapes = 0
        self._in_meanings = 0
        # Meanings that there was no room for since the last one was kept.
        self._passed_over = 0
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

    def head(self, found: re.Match[bytes], octets: int) -> ShapedHead | None:
        """Return the head of a block that the recent shape has found.

        The same object again where the block is the same as the last one. None if the block is not
        UTF-8.
        """
        shape = self.recent
        assert shape is not None
        groups: tuple[bytes, ...] = found.groups()
        place = shape.meant_at
        meant = groups[place] if place >= 0 else _joined(groups, shape.meant)
        meaning = shape.latest
        # Most often the same again, which is seen sooner than it is looked up.
        if meaning is None or meaning.lines != meant:
            meaning = shape.meanings.get(meant)
            if meaning is None:
                meaning = self._learn(shape, meant)
                if meaning is None:
                    return None
            else:
                shape.latest = meaning
        place = shape.passed_at
        lines = groups[place] if place >= 0 else _joined(groups, shape.passed)
        if shape.is_wide:
            if not _is_utf8(lines):
                return None
            if lines.count(b":") != shape.count:
                lines = _escaped(lines)
        length = -1 if shape.length < 0 else int(groups[shape.length])
        last = shape.last
        if (
            last is not None
            and last.meaning is meaning
            and length == last.content_length
            and lines == last.lines
        ):
            last.is_repeated = True
            return last
        head = ShapedHead(meaning, lines, length, octets - shape.overhead, found)
        if shape.remembers and shape.latest is meaning:
            shape.last = head
        return head

    def _learn(self, shape: Shape, lines: bytes) -> Meaning | None:
        """Return a new meaning, which is kept if there is room.

        None if the lines are not UTF-8.
        """
        if not _is_utf8(lines):
            return None
        meaning = Meaning(shape, lines)
        octets = _MEANING * (1 + lines.count(b",")) + _LINE * len(lines)
        if self._in_shapes + self._in_meanings + octets > MOST_KEPT:
            self._passed_over += 1
            if self._passed_over < CROWDED:
                return meaning
            self._forget_meanings()
        self._in_meanings += octets
        shape.meanings[lines] = shape.latest = meaning
        return meaning

    def _forget_meanings(self) -> None:
        for shape in self._by_key.values():
            # They hold the shape, which would hold them.
            shape.latest = shape.last = None
            shape.meanings.clear()
        self._in_meanings = 0
        self._passed_over = 0

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
        names = tuple(headers)
        key = hash(names)
        known = self._by_key.get(key)
        if known is not None:
            if known.is_wide or known.match(block) is not None:
                # The latter came in parts.
                return
        else:
            octets = _SHAPE + _HEADER * len(names) + _NAME * sum(map(len, names))
            together = self._in_shapes + octets
            has_room = len(self._by_key) < MOST_SHAPES and together <= MOST_IN_SHAPES
            count = self._seen.get(key, 0) + 1
            if count < (ENOUGH if has_room else CROWDED):
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen[key] = count
                return
            if octets > MOST_IN_SHAPES or not all(map(_is_plain, names)):
                return
            if not has_room:
                self.forget()
            elif together + self._in_meanings > MOST_KEPT:
                self._forget_meanings()
            self._in_shapes += octets
            self._seen.pop(key, None)
        shape = Shape(names, version, self._rule, wide=known is not None)
        if known is not None:
            # Those of the narrow one go with it.
            self._forget_meanings()
        self.release()
        self._by_key[key] = self.recent = shape

    def forget(self) -> None:
        """Keep nothing: by other rules the same bytes are other heads."""
        self._forget_meanings()
        self._by_key.clear()
        self._seen.clear()
        self._in_shapes = 0
        self.recent = None


def _is_utf8(octets: bytes) -> bool:
    if not octets.isascii():
        try:
            octets.decode()
        except UnicodeDecodeError:
            return False
    return True


def _is_plain(name: str) -> bool:
    """Whether a name is in a block as it is in ``headers``.

    And the same to all consumers: a line that is passed on may have it then.
    """
    return (
        ":" not in name
        and "\\" not in name
        and name.isprintable()
        and name[0] != " "
        and name[-1] != " "
    )
