"""Summaries such as the jobs make, one of each kind, and one of everything that a message may
hold.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from pipeline.summary import Chart, Cube, Stage, Summary, Table

START: Final = datetime(2026, 3, 1, 6, tzinfo=UTC)
WHEN: Final = datetime(2026, 3, 3, 12, 30, tzinfo=UTC)
QUEUES: Final = (
    "queue:orders",
    "queue:invoices",
    "queue:shipments",
    "queue:payments",
    "queue:audit.trail",
    "queue:customers",
    "queue:stock",
    "queue:returns",
)
REASONS: Final = ("EXPIRED", "UNDELIVERABLE", "TRANSFORM_FAILURE")

#: What must be nothing but text, wherever it stands.
HOSTILE: Final[tuple[str | None, ...]] = (
    "<script>document.title = 'taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "'; --></style></title></textarea><h1>taken</h1>",
    "]]></desc></svg><iframe srcdoc='taken'></iframe>",
    "\u202egnp.exe\u2066",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\x00\x1b[31mred\x07\x7f\x9b",
    "x" * 5_000,
    "",
    "_hidden",
    "$\\frac{a}{b}$ $x",
    "\u6ce8\u6587\u961f\u5217",
    "\ud800 half",
    "a\nb\tc\r\u2028d",
    "&amp;&lt;&#60;script&#62;",
    "{{ 7 * 191 }}{% include 'page.html' %}",
    "\U0001f600 Z\u0300\u0301\u0302\u0303\u0304a",
    "javascript:alert(1)//",
    "\ufffe\uffff",
    None,
)


def summaries(seed: int = 1) -> dict[str, Summary]:
    random = Random(seed)
    hours = [START + timedelta(hours=hour) for hour in range(30)]
    outcomes = {"delivered": 40_111, "waiting": 12, "lost": 2, "dead": 106}
    return {
        "ingest": Summary(
            "Ingested into /data/events",
            {"events": 1_234_567, "batches": 12, "damaged lines": 3},
            [
                Table(
                    "Events per hour by destination",
                    ("time", "destination", "events"),
                    [
                        (hour, queue, random.randrange(1, 4_000))
                        for hour in hours
                        for queue in (*QUEUES[:7], "others")
                    ],
                    chart=Chart("bar", "time", ("events",), by="destination", unit="events"),
                ),
                Table(
                    "Events by destination",
                    ("destination", "events"),
                    [
                        (
                            f"queue:a.name.so.long.that.somebody.must.have.been.paid.by.the.letter.{place:04}",
                            900_000 // (place + 1),
                        )
                        for place in range(38)
                    ],
                    chart=Chart("bar", "destination", ("events",)),
                ),
            ],
        ),
        "journeys": Summary(
            "Journeys of /var/imq/journal",
            {"messages": 40_231, **outcomes, "journal": "/var/imq/journal"},
            [
                Table(
                    "Latency by destination",
                    ("destination", "messages", "p50_ms", "p90_ms", "p99_ms"),
                    [
                        (queue, 100 * place, 1.5 * place, 12.0 * place, 900.0 * place)
                        for place, queue in enumerate(QUEUES, 1)
                    ],
                    chart=Chart("range", "destination", ("p50_ms", "p90_ms", "p99_ms"), unit="ms"),
                ),
                Table(
                    "Latency by hour",
                    ("hour", "p50_ms", "p99_ms"),
                    [
                        (hour, 2 + random.random(), 200 + 100 * random.random())
                        for hour in hours
                        if hour.hour not in (13, 14)
                    ],
                    chart=Chart("line", "hour", ("p50_ms", "p99_ms"), unit="ms"),
                ),
                Table(
                    "The journey of ID:1-orders-7",
                    ("time", "step", "destination"),
                    [
                        (START + timedelta(microseconds=at), step, "queue:orders")
                        for at, step in (
                            (0, "produced"),
                            (1_200, "stored"),
                            (1_300, "confirmed"),
                            (81_300, "delivered"),
                            (181_300, "returned"),
                            (1_181_300, "redelivered"),
                            (1_191_300, "acknowledged"),
                            (1_191_300, "deleted"),
                        )
                    ],
                    chart=Chart("timeline", "time", ("step", "destination")),
                ),
                Table("Stuck", ("message", "destination", "since"), []),
            ],
        ),
        "dead-letters": Summary(
            "Dead messages of queue:mq.sys.dmq at 127.0.0.1:7672",
            {"dead messages": 412, "first": START, "period": "1 h"},
            [
                Table(
                    "Dead messages by reason",
                    ("reason", "messages"),
                    [("EXPIRED", 210), ("UNDELIVERABLE", 101), ("TRANSFORM_FAILURE", 101)],
                    chart=Chart("bar", "reason", ("messages",)),
                ),
                Table(
                    "Dead messages per hour",
                    ("time", "reason", "messages"),
                    [
                        (hour, reason, random.randrange(1, 20))
                        for hour in hours
                        for reason in REASONS
                        if random.random() < 0.5
                    ],
                    chart=Chart("bar", "time", ("messages",), by="reason", unit="messages"),
                ),
                Table(
                    "Dead messages by destination and reason",
                    ("destination", "reason", "messages"),
                    [
                        (queue, reason, random.randrange(1, 90))
                        for queue in QUEUES
                        for reason in REASONS[:2]
                    ],
                    chart=Chart("bar", "destination", ("messages",), by="reason", unit="messages"),
                ),
                Table(
                    "Examples",
                    ("of", "message", "comment"),
                    [
                        (
                            1,
                            "ID:1",
                            "java.lang.Error: no price\n\tat shop.Order.parse(Order.java:12)",
                        )
                    ],
                ),
            ],
        ),
        "reconcile": Summary(
            "The link orders/to-erp does not agree",
            {"received": 10_000, "sent": 9_998, "window": "2026-03-01 06:00 to 12:00"},
            [
                Table(
                    "What does not agree",
                    ("finding", "messages"),
                    [("lost", 2), ("doubled", 1), ("reordered", 0), ("altered", 1), ("late", 4)],
                    chart=Chart("bar", "finding", ("messages",)),
                ),
                Table(
                    "Examples",
                    ("finding", "message", "received", "sent"),
                    [("lost", "ID:1-2", START, None), ("late", "ID:1-3", START, WHEN)],
                ),
            ],
        ),
        "archive": Summary(
            "Archived",
            {"messages added": 10},
            [
                Table(
                    "Messages per hour",
                    ("time", "messages"),
                    [(START, 10)],
                    chart=Chart("bar", "time", ("messages",), unit="messages"),
                ),
                Table(
                    "Octets per hour",
                    ("time", "octets"),
                    [(START, 10_240)],
                    chart=Chart("line", "time", ("octets",), unit="octets"),
                ),
            ],
        ),
        "flow": flow(("queue:orders", "queue:invoices"), ("delivered", "lost")),
        "empty": Summary("No dead messages in /var/imq/journal"),
        "hostile": hostile(),
    }


def hostile() -> Summary:
    first = str(HOSTILE[0])
    named = {str(text): text for text in HOSTILE}
    return Summary(
        " ".join(str(text) for text in HOSTILE[:5]),
        {**named, "figure": 3},
        [
            Table(
                first,
                (f"name {first}", "value", str(HOSTILE[1])),
                [(text, place, text) for place, text in enumerate(HOSTILE, 1)],
                str(HOSTILE[2]),
                Chart("bar", f"name {first}", ("value",), unit=str(HOSTILE[3])),
            ),
            Table(
                str(HOSTILE[3]),
                ("time", "name", "value"),
                [
                    (START + timedelta(minutes=minute), text, minute + place)
                    for place, text in enumerate(HOSTILE)
                    for minute in range(5)
                ],
                chart=Chart("line", "time", ("value",), by="name", unit="seconds"),
            ),
            Table(
                str(HOSTILE[4]),
                ("time", "message", "step", "about"),
                [
                    (
                        START + timedelta(seconds=second),
                        HOSTILE[place],
                        HOSTILE[(place + second) % len(HOSTILE)],
                        HOSTILE[second],
                    )
                    for place in range(4)
                    for second in range(5)
                ],
                chart=Chart("timeline", "time", ("step", "about"), by="message"),
            ),
            Table(
                "Ranges",
                ("name", "p50", str(HOSTILE[1])),
                [(text, 0.1, 0.2) for text in HOSTILE],
                chart=Chart("range", "name", ("p50", str(HOSTILE[1])), unit="ms"),
            ),
        ],
    )


#: What the cube of the flow has: messages in each of the hours, by queue and outcome.
HOURS: Final = 4
COUNTS: Final = {(0, 0): 100, (0, 1): 3, (1, 0): 40, (1, 1): 0}


def flow(queues: tuple[str, str], outcomes: tuple[str, str]) -> Summary:
    """A page with all that is drawn of a cube.

    Of the first queue a step takes 1 ms, of the second 1 s; the second outcome takes 60 s.
    """
    links = ("shop/erp", "shop/lake")
    rows: list[tuple[object, ...]] = []
    for hour in range(HOURS):
        for (queue, outcome), count in COUNTS.items():
            took = 60_000.0 if outcome else 1_000.0 if queue else 1.0
            names = (queues[queue], links[queue], "queue:erp", outcomes[outcome])
            for measure, value in (
                ("messages", took),
                ("linked", None),
                ("produced", None),
                ("stored", took),
                ("late", None),
            ):
                number = 1 if measure == "late" and not outcome else count
                if number and not (measure == "late" and outcome):
                    rows.append((START + timedelta(hours=hour), *names, measure, value, number))
    columns = ("time", "destination", "link", "target", "outcome", "measure", "value", "messages")
    first = int(START.timestamp())
    cube = Cube(columns, rows, 3_600, (first, first + HOURS * 3_600))
    stages = (
        Stage("1", "Production", "producer → broker", "It is sent", "produced", "one event"),
        Stage("3", "Routing", "broker → store", "It is stored", "stored"),
    )
    of: dict[str, Any] = {"cube": cube, "measure": "messages"}
    by_queue = [(queues[0], HOURS * 103, 1.0, 60_000.0), (queues[1], HOURS * 40, 1_000.0, 1_000.0)]
    by_outcome = [(outcomes[0], HOURS * 140), (outcomes[1], HOURS * 3)]
    over_time = [
        (START + timedelta(hours=hour), *row) for hour in range(HOURS) for row in by_outcome
    ]
    return Summary(
        "Flow",
        {"messages": HOURS * 143, "lost": HOURS * 3, "late": 2},
        [
            Table(
                "The flow of messages",
                ("step", "messages"),
                [("1", HOURS * 143), ("3", HOURS * 143)],
                chart=Chart("flow", "time", ("messages",), unit="ms", stages=stages, **of),
            ),
            Table(
                "Links",
                ("destination", "link", "target", "messages"),
                [(queues[place], links[place], "queue:erp", 1) for place in (0, 1)],
                chart=Chart(
                    "map", "destination", ("link", "target"), "outcome", cube=cube, measure="linked"
                ),
            ),
            Table(
                "Outcomes",
                ("outcome", "messages"),
                by_outcome,
                chart=Chart("bar", "outcome", ("messages",), unit="messages", **of),
            ),
            Table(
                "Messages per hour by outcome",
                ("time", "outcome", "messages"),
                over_time,
                chart=Chart(
                    "bar",
                    "time",
                    ("messages",),
                    "outcome",
                    also=("destination", "link"),
                    **of,
                ),
            ),
            Table(
                "Latency by destination",
                ("destination", "messages", "p50_ms", "p99_ms"),
                by_queue,
                chart=Chart(
                    "range", "destination", ("p50_ms", "p90_ms", "p99_ms"), unit="ms", **of
                ),
            ),
            Table(
                "Latency by hour",
                ("hour", "p99_ms"),
                [(START, 60_000.0)],
                chart=Chart("line", "time", ("p50_ms", "p90_ms", "p99_ms"), unit="ms", **of),
            ),
            Table(
                "Lost",
                ("message", "destination", "outcome", "began"),
                [("ID:1", queues[0], outcomes[1], START)],
            ),
        ],
    )
