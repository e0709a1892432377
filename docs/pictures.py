"""Draw the pictures of ``docs/pictures``.

They show bridges, a message's journey, and two phases. Each is one SVG file. Its colours follow the reader's system, or the theme that the reader has chosen
on a page that has the picture in it. Run it after a change here: ``.venv/bin/python docs/pictures.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "pictures"

_LIGHT: Final = (
    "--ink:#1e293b;--soft:#475569;--line:#64748b;--paper:#ffffff;"
    "--here:#dbeafe;--there:#dcfce7;--note:#f1f5f9;--good:#15803d;--bad:#b91c1c"
)
_DARK: Final = (
    "--ink:#e2e8f0;--soft:#a8b3c4;--line:#8593a8;--paper:#131416;"
    "--here:#1e3a5f;--there:#14432a;--note:#232a35;--good:#4ade80;--bad:#f87171"
)
_STYLE: Final = (
    f".picture{{{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{.picture{{{_DARK}}}}}"
    f'body[data-theme="light"] .picture{{{_LIGHT}}}'
    f'body[data-theme="dark"] .picture{{{_DARK}}}'
    ".picture text{fill:var(--ink);font:13px sans-serif}"
    ".picture .small{font-size:11.5px;fill:var(--soft)}"
    ".picture .bold{font-weight:bold}.picture .good{fill:var(--good)}.picture .bad{fill:var(--bad)}"
    ".picture .code{font-family:monospace;font-size:12px}"
    ".picture rect{stroke:var(--line);fill:var(--note)}"
    ".picture .here{fill:var(--here)}.picture .there{fill:var(--there)}"
    ".picture .paper{fill:var(--paper);stroke:none}"
    ".picture line,.picture path{stroke:var(--line);stroke-width:1.4;fill:none}"
    ".picture .dash{stroke-dasharray:4 4}.picture .cut{stroke:var(--bad);stroke-dasharray:5 4}"
    ".picture marker path{fill:var(--line);stroke:none}"
)


class Picture:
    """An SVG drawing.

    :param name: of its file, and of what is named inside of it.
    :param title: what it shows, for those who cannot see it.
    """

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self._name = name
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" '
            f'aria-labelledby="{name}-title" viewBox="0 0 {width} {height}">',
            f'<title id="{name}-title">{escape(title)}</title>',
            f"<style>{_STYLE}</style>",
            f'<marker id="{name}-to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
            ' markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker>',
            f'<rect class="paper" width="{width}" height="{height}"/>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """Write a line of text."""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(
        self, x: int, y: int, width: int, height: int, kind: str, head: str, *lines: str
    ) -> None:
        """Draw a box with a heading, and lines below it."""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )
        self.text(x + width / 2, y + 21, head, "bold")
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + 39 + 16 * number, line, "small")

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, *, both: bool = False, kind: str = ""
    ) -> None:
        """Draw an arrow to the second point, or to either."""
        begin = f' marker-start="url(#{self._name}-to)"' if both else ""
        self._parts.append(
            f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{begin}'
            f' marker-end="url(#{self._name}-to)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "") -> None:
        """Draw a line without a head."""
        self._parts.append(
            f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
        )

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def bridges() -> str:
    """Draw what a gateway joins."""
    drawn = Picture(
        "bridges",
        "STOMP clients use the broker inside the gateway. Links of its bridges move messages between "
        "that broker and JMS providers, STOMP brokers, AMQP 1.0 brokers and providers of your own.",
        700,
        362,
    )
    drawn.box(8, 60, 132, 66, "", "STOMP clients", "in any language,", "TCP and TLS")
    drawn.box(8, 150, 132, 50, "", "Browsers", "WebSocket")
    drawn.box(8, 226, 132, 66, "", "Operators", "imqcmd, why,", "the console")
    drawn.box(216, 10, 240, 342, "here", "stomp-gateway", "one process")
    drawn.box(
        236,
        62,
        200,
        88,
        "",
        "Broker",
        "queues, topics,",
        "durable subscriptions,",
        "selectors, transactions",
    )
    drawn.box(
        236,
        174,
        200,
        104,
        "",
        "Bridges",
        "links, each from one source",
        "to one target, in order;",
        "transformers; dead messages;",
        "XA with a transaction log",
    )
    drawn.box(236, 296, 120, 44, "", "Store", "SQLite, PostgreSQL")
    drawn.box(364, 296, 72, 44, "", "Journal", "each step")
    drawn.arrow(140, 93, 236, 93, both=True)
    drawn.arrow(140, 172, 236, 132, both=True)
    drawn.arrow(140, 258, 216, 258)
    drawn.arrow(336, 150, 336, 174, both=True)
    peers = (
        ("JMS providers", "by their Java client", "XA: once and only once"),
        ("STOMP brokers", "another gateway, Artemis:", "ids: once and only once"),
        ("AMQP 1.0 brokers", "Artemis, Service Bus:", "ids: once and only once"),
        ("Your provider", "a Python package", "by what it can do"),
    )
    for number, (head, *lines) in enumerate(peers):
        y = 16 + 86 * number
        drawn.box(530, y, 162, 72, "there", head, *lines)
        drawn.arrow(436, 200 + 18 * number, 530, y + 36, both=True)
    return drawn.svg()


def _lifelines(drawn: Picture, heads: tuple[tuple[int, str, str], ...], bottom: int) -> None:
    for x, head, kind in heads:
        drawn.line(x, 44, x, bottom, "dash")
        drawn.box(x - 56, 10, 112, 34, kind, head)


def journey() -> str:
    """Draw the ten steps of a message, as the journal has them."""
    drawn = Picture(
        "journey",
        "The ten steps of a message from its sender by the broker and the store to its consumer, "
        "with the event of the journal for each.",
        700,
        424,
    )
    sender, broker, store, consumer = 70, 258, 472, 632
    _lifelines(
        drawn,
        (
            (sender, "Sender", ""),
            (broker, "Broker", "here"),
            (store, "Store", "here"),
            (consumer, "Consumer", ""),
        ),
        414,
    )
    steps = (
        (sender, broker, "1, 2  SEND", "produced"),
        (broker, store, "3  write, sync", "stored"),
        (broker, sender, "4  RECEIPT", "confirmed"),
        (broker, broker, "5  choose a consumer", "routed"),
        (broker, consumer, "6, 7  MESSAGE", "delivered"),
        (consumer, broker, "8  ACK", "acknowledged"),
        (broker, store, "9  delete", "deleted"),
        (broker, consumer, "10  RECEIPT", "acknowledgement confirmed"),
    )
    for number, (begin, end, what, event) in enumerate(steps):
        y = 84 + 44 * number
        if begin == end:
            drawn.text(begin + 10, y - 6, what, "", "start")
            drawn.text(begin + 10, y + 11, event, "small code", "start")
            continue
        middle = (begin + end) / 2 if abs(begin - end) < 200 else (begin + store) / 2
        if begin == consumer:
            middle = (broker + store) / 2
        drawn.arrow(begin, y, end, y)
        drawn.text(middle, y - 6, what)
        drawn.text(middle, y + 14, event, "small code")
    return drawn.svg()


def two_phases() -> str:
    """Draw a transaction by XA, and what a crash at each step leaves."""
    drawn = Picture(
        "two_phases",
        "A transaction of a link by XA, step by step. A crash before the decision is on the disk rolls "
        "both branches back; a crash after it commits both.",
        700,
        560,
    )
    source, link, log, target = 70, 208, 332, 456
    _lifelines(
        drawn,
        (
            (source, "Source", "there"),
            (link, "Link", "here"),
            (log, "Log", "here"),
            (target, "Target", "there"),
        ),
        550,
    )
    drawn.text(612, 31, "A crash after it:", "bold")
    before, after = "bad", "good"
    steps = (
        (((source, link, "1  receive"),), "both roll back:", "the source has them", before),
        (((link, target, "2  send"),), "both roll back:", "the source has them", before),
        (
            ((link, source, "3  prepare"), (link, target, "3  prepare")),
            "prepared, no decision:",
            "both roll back",
            before,
        ),
        (
            ((source, link, "prepared"), (target, link, "prepared")),
            "prepared, no decision:",
            "both roll back",
            before,
        ),
        (((link, log, "4  decide"),), "decided, on the disk:", "both commit", after),
        (
            ((link, source, "5  commit"), (link, target, "5  commit")),
            "the rest is committed",
            "at the next start",
            after,
        ),
        (
            ((source, link, "committed"), (target, link, "committed")),
            "committed: the target",
            "has them",
            after,
        ),
        (((link, log, "6  forget"),), "nothing is left to do", "", after),
    )
    for number, (arrows, first, second, kind) in enumerate(steps):
        y = 88 + 60 * number
        for begin, end, what in arrows:
            drawn.arrow(begin, y, end, y)
            near = link if log in (begin, end) else min(begin, end)
            middle = near + (62 if near == link else 69)
            drawn.text(middle if target not in (begin, end) else (log + target) / 2, y - 7, what)
        drawn.text(530, y - 5, first, f"small {kind}", "start")
        drawn.text(530, y + 11, second, f"small {kind}", "start")
        if kind == before and steps[number + 1][-1] == after:
            drawn.line(8, y + 25, 692, y + 25, "cut")
    return drawn.svg()


DRAWN: Final[dict[str, Callable[[], str]]] = {
    "bridges": bridges,
    "journey": journey,
    "two_phases": two_phases,
}


if __name__ == "__main__":
    for name, draw in DRAWN.items():
        FOLDER.joinpath(f"{name}.svg").write_text(draw(), encoding="utf-8")
