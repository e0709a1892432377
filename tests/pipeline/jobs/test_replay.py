"""Dead messages are sent again through a real gateway: as they were, each once, and nothing that
was not approved, also by a replay that is killed and carried on.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.messaging.message import BodyType
from pipeline.connection import Connection
from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.output import Output
from tests.documented_blocks import shown
from tests.gateway_process import ROOT
from tests.pages import printed
from tests.pipeline.graveyard import BRIDGE_DMQ, BROKER_DMQ
from tests.pipeline.jobs.replays import BODIES, NOBODY, OPTIONS, Job, compared, order


def test_messages_of_all_types_come_back_to_where_they_were_as_they_were(job: Job) -> None:
    sent = [order(number, kind) for number, kind in enumerate(BodyType)]
    job.graveyard.buried(sent)
    assert (job.run(approve=job.make()).sent, job.states()) == (
        6,
        {"intended": 6, "sent": 6},
    )
    # There they die again, so that what had come can be looked at.
    job.graveyard.until_there(BRIDGE_DMQ, 12)
    originals = job.graveyard.originals()
    assert [compared(message) for message in originals] == [
        compared(message) for message in sent * 2
    ]
    assert {str(message.headers.destination) for message in originals} == {"queue:broken.in"}
    # Carried out again, the plan finds nothing to do; those that died anew are in another one.
    again = job.run(approve=job.plan)
    assert (again.sent, again.before) == (0, 6)
    assert json.loads(job.make().read_text().splitlines()[-1])["messages"] == 6


def test_what_is_chosen_goes_where_it_is_told_and_leaves_the_queue(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = job.graveyard.buried([order(number) for number in range(5)])
    plan = job.make(
        where="reason = 'TRANSFORM_FAILURE' and destination like '%broken%' and comment like '%order 3 %'",
        to="queue:revived",
    )
    [row] = [json.loads(line) for line in plan.read_text().splitlines()[1:-1]]
    assert (row["message_id"], row["target"]) == (ids[3], "queue:revived")
    _has(job, capsys.readouterr().out, "--plan orders.plan")
    done = job.run(approve=plan, remove=True)
    assert (done.sent, done.removed) == (1, 1)
    _has(job, capsys.readouterr().out, "--approve")
    [found] = job.graveyard.browsed("revived")
    assert (found.headers["message-id"], found.headers["correlation-id"], found.body) == (
        "ID:made:3",
        "c3",
        BODIES[BodyType.TEXT],
    )
    assert [frame.headers["message-id"] for frame in job.graveyard.browsed(BRIDGE_DMQ)] == [
        *ids[:3],
        ids[4],
    ]
    job.graveyard.emptied("revived")


def _has(job: Job, said: str, part: str) -> None:
    """The page shows what is printed, of that command."""
    text = shown("pipeline_dead_letters", "$ gateway-pipeline replay", part)
    page = text.replace("\\\n", " ").partition("\n")[2].removeprefix("...\n")
    for there, here in (("orders.plan", job.plan), ("/var/lib/replay", job.ledger)):
        page = page.replace(there, str(here))
    assert printed.has(said, page), f"{page}\n{said}"


def test_the_brokers_own_dead_are_restored_without_what_their_death_added(job: Job) -> None:
    job.graveyard.refused("shop", [b"one", b"two"], colour="red", **{"x-extra": "e"})
    job.graveyard.expired("shop", [b"late"], colour="blue")
    before = job.graveyard.browsed(BROKER_DMQ)
    assert job.run(approve=job.make(BROKER_DMQ), remove=True).removed == 3
    assert job.graveyard.browsed(BROKER_DMQ) == []
    found = job.graveyard.browsed("shop")
    assert [(frame.body, frame.headers["colour"], frame.headers["expires"]) for frame in found] == [
        (b"one", "red", "0"),
        (b"two", "red", "0"),
        (b"late", "blue", "0"),
    ]
    assert [frame.headers["message-id"] for frame in found] == [
        frame.headers["message-id"] for frame in before
    ]
    assert found[0].headers["x-extra"] == "e"
    assert not [name for name in found[0].headers if name.startswith("JMS_SUN_DMQ")]
    job.graveyard.emptied("shop")


def test_the_brokers_own_dead_of_every_type_are_restored_to_the_type_of_each_property(
    job: Job,
) -> None:
    sent = [order(number, kind) for number, kind in enumerate(BodyType)]
    job.graveyard.refused_whole("shop", sent)
    [*dead] = job.graveyard.whole(BROKER_DMQ)
    assert {message.headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] for message in dead} == {
        "UNDELIVERABLE"
    }
    done = job.run(approve=job.make(BROKER_DMQ), remove=True)
    assert (done.sent, done.removed) == (6, 6)
    assert job.graveyard.browsed(BROKER_DMQ) == []
    found = job.graveyard.whole("shop")
    assert [compared(message) for message in found] == [compared(message) for message in sent]
    assert {str(message.headers.destination) for message in found} == {"queue:shop"}
    job.graveyard.emptied("shop")


def test_a_dry_run_sends_nothing_and_says_what_it_would_do(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.graveyard.buried([order(1), order(2, BodyType.MAP)])
    job.run(queue=BRIDGE_DMQ, connection=job.graveyard.connection())
    said = capsys.readouterr().out
    assert "this is a dry run" in said
    _, _, *page = shown(
        "pipeline_dead_letters", "$ gateway-pipeline replay", "a dry run"
    ).splitlines()
    port = str(job.graveyard.gateway.port)
    facts = "\n".join(page[: page.index("Where they would go") + 1])
    # The tests have a ledger, and that session has none.
    facts = facts.replace("not known: there is no --ledger", "0").replace("7672", port)
    assert printed.has(said, facts), said
    for line in page:
        if "┃" in line:
            assert printed.has(said, line), said
    assert "queue:broken.in" in said
    assert not job.ledger.exists()
    assert len(job.graveyard.browsed(BRIDGE_DMQ)) == 2


def test_a_plan_is_carried_out_as_it_is_or_not_at_all(job: Job) -> None:
    job.graveyard.buried([order(1), order(2)])
    plan = job.make(to="queue:revived")
    text = plan.read_text()
    plan.write_text(text.replace("queue:revived", "queue:others"))
    with pytest.raises(PipelineError, match="was changed"):
        job.run(approve=plan)
    plan.write_text(text)
    with job.graveyard.client() as client:
        client.ask(
            "SUBSCRIBE",
            {"destination": f"/queue/{BRIDGE_DMQ}", "id": "1", "ack": "client-individual"},
        )
        client.ask("ACK", {"id": client.message().headers["ack"]})
    with pytest.raises(PipelineError, match="1 message that the plan names are gone"):
        job.run(approve=plan)
    assert job.graveyard.browsed("revived") == []
    assert job.states() == {}


@pytest.mark.parametrize("name", ["_plan", ".plan", "plan[1]", "a,{b} ü"])
def test_a_plan_and_a_ledger_may_have_any_name(name: str, job: Job, tmp_path: Path) -> None:
    job.graveyard.buried([order(1)])
    job.plan, job.ledger = tmp_path / name, tmp_path / f"{name} ledger"
    assert job.run(approve=job.make(to="queue:revived")).sent == 1
    assert [path.name for path in job.ledger.iterdir()] == ["ledger.sqlite"]
    assert len(job.graveyard.browsed("revived")) == 1
    job.graveyard.emptied("revived")


def test_what_became_of_each_is_written(job: Job, tmp_path: Path) -> None:
    job.graveyard.buried([order(1), order(2)])
    output = Output(str(tmp_path / "told"), "json")
    job.run(approve=job.make(where="comment like '%order 2 %'", to="queue:revived"))
    plan = job.make(to="queue:revived")
    assert len(plan.read_text().splitlines()) == 3
    job.run(approve=plan, output=output)
    job.run(approve=plan, output=replace(output, path=str(tmp_path / "again")))
    for name, status in (("told", "sent"), ("again", "sent before")):
        [row] = [
            json.loads(line)
            for path in (tmp_path / name).glob("*.json")
            for line in path.read_text().splitlines()
        ]
        assert (row["place"], row["target"], row["status"]) == (1, "queue:revived", status)
        assert row["sent"] > row["died"]
    job.graveyard.emptied("revived")


def test_the_passcode_may_be_somewhere_else_when_a_plan_is_carried_out() -> None:
    from pipeline.datasource.options import Use, parse
    from pipeline.jobs.replay import anew

    planned = {"port": "1", "login": "admin", "passcodeEnv": "SECRET"}
    for given, file, env in (
        ({}, None, "SECRET"),
        ({"passcodeFile": "f"}, "f", None),
        ({"login": "me"}, None, "SECRET"),
    ):
        found = parse(anew(planned, given), Use.WRITE)
        assert (found.port, found.login, found.passcode_file, found.passcode_env) == (
            1,
            given.get("login", "admin"),
            file,
            env,
        )


def test_what_the_broker_refuses_is_one_line_and_what_it_has_is_in_the_ledger(job: Job) -> None:
    job.graveyard.buried([order(1)])
    plan = job.make(to="queue:no?such=queue")
    with pytest.raises(Exception) as refused:  # noqa: PT011
        job.run(approve=plan)
    said = sentence(refused.value) or str(refused.value)
    assert "the STOMP broker at 127.0.0.1:" in said
    assert "refused" in said
    assert "\n" not in said
    assert job.states() == {"intended": 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": " ", "queue": "q"}, "--where is empty: "),
        (
            {"rate": math.inf, "approve": Path("x")},
            "--rate inf: expected 0.001 to 1,000,000 messages a second",
        ),
        ({"rate": math.nan, "approve": Path("x")}, "--rate nan: expected "),
        ({"rate": 1e-9, "approve": Path("x")}, "--rate 1e-09: expected "),
    ],
)
def test_options_that_make_no_sense_are_one_line(options: dict[str, Any], said: str) -> None:
    from pipeline.jobs.replay import check

    given = {
        **dict.fromkeys(OPTIONS),
        "connection": NOBODY,
        "target": NOBODY,
        "ledger": Path("l"),
        **options,
    }
    with pytest.raises(PipelineError) as refused:
        check(given)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "colour = 'red'"}, "--where: there is no column `colour`; there are body, "),
        (
            {"administrator": False},
            "restores messages for users in the group admin only, and guest is not",
        ),
        ({"login": "nobody"}, "refused the login nobody: "),
    ],
)
def test_what_cannot_be_done_is_one_line(job: Job, options: dict[str, Any], said: str) -> None:
    connection = job.graveyard.connection(options.pop("administrator", True))
    if "login" in options:
        connection = Connection({**connection.options, "login": options.pop("login")})
    with pytest.raises(PipelineError) as refused:
        job.make(connection=connection, **options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


# --- killed by SIGKILL and carried on


@pytest.mark.parametrize(
    ("point", "times", "sent", "there"),
    [
        # The second of two portions is at the broker, and the ledger does not say so yet.
        ("sending", 2, 3, 6),
        # It is to be sent.
        pytest.param("intended", 2, 3, 3, marks=pytest.mark.long),
        # It was sent, and the dead messages are still there.
        pytest.param("sent", 2, 6, 6, marks=pytest.mark.long),
        # Those of the first are gone.
        pytest.param("removed", 1, 3, 3, marks=pytest.mark.long),
    ],
)
def test_a_replay_that_is_killed_at_any_moment_sends_each_message_once(
    point: str, times: int, sent: int, there: int, job: Job
) -> None:
    job.graveyard.buried([order(number) for number in range(6)])
    plan = job.make(to="queue:revived")
    killed_at(point, times, job)
    assert job.states() == {
        "intended": 3 if point == "removed" else 6,
        "sent": sent,
        "removed": 3,
    }
    assert len(job.graveyard.browsed("revived")) == there
    done = job.run(approve=plan, remove=True)
    assert (done.sent, done.before, done.removed) == (6 - sent, sent, 3)
    found = Counter(frame.headers["message-id"] for frame in job.graveyard.browsed("revived"))
    assert found == {f"ID:made:{number}": 1 for number in range(6)}
    assert job.graveyard.browsed(BRIDGE_DMQ) == []
    job.graveyard.emptied("revived")


def killed_at(point: str, times: int, job: Job) -> None:
    """Carry out the plan in a process of its own, which is killed when it comes to this point for
    the N-th time.
    """
    words = [
        sys.executable,
        "-m",
        "tests.pipeline.jobs.replaying",
        point,
        str(times),
        str(job.plan),
        str(job.ledger),
        "3",
    ]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
