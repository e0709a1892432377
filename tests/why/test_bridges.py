"""Bridges that are paused or stopped, and what waits for their links."""

from __future__ import annotations

import json
import shlex
from typing import Any

from tests.why.scenes import Scene, name

OF_LINK = {"bridge": "spare", "link": "runs"}


def kinds(answer: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in answer["causes"]]


def test_a_bridge_is_paused(scene: Scene) -> None:
    scene.run("imqbridgemgr stop link -bn spare -ln halted")
    scene.run("imqbridgemgr pause bridge -bn spare")
    try:
        scene.put("/queue/spare.in", "1", "2")
        cause = scene.cause("BRIDGE_PAUSED", "link", **OF_LINK)
        assert cause["figures"] == {"state": "PAUSED", "waiting": 2}
        assert "Bridge 'spare' is PAUSED, and link 'runs'" in cause["sentence"]
        assert "LINK_PAUSED" not in kinds(scene.ask("link", **OF_LINK))
        # A link that was stopped cannot be started before the bridge is resumed.
        stopped = scene.ask("link", bridge="spare", link="halted")
        assert kinds(stopped)[:2] == ["BRIDGE_PAUSED", "LINK_STOPPED"]
        cause = scene.queue("spare.in", "BRIDGE_PAUSED")
        assert "it takes messages from queue 'spare.in'" in cause["sentence"]
    finally:
        scene.run("imqbridgemgr resume bridge -bn spare")
    assert cause["command"] == "imqbridgemgr resume bridge -bn spare"
    assert "BRIDGE_PAUSED" not in kinds(scene.ask("link", **OF_LINK))
    with scene.client() as client:
        client.subscribe("/queue/spare.out")
        client.messages(2)


def test_a_bridge_is_stopped(scene: Scene) -> None:
    queue = name()
    scene.run("imqbridgemgr stop bridge -bn spare")
    try:
        scene.put("/queue/spare.in", "1", "2")
        cause = scene.cause("BRIDGE_STOPPED", "link", **OF_LINK)
        assert cause["figures"] == {"state": "STOPPED"}
        cause = scene.queue("spare.in", "BRIDGE_STOPPED")
        assert (
            "its links 'runs', 'halted', which take messages from queue 'spare.in', with it"
            in cause["sentence"]
        )
        brought = scene.queue("spare.out", "BRIDGE_STOPPED")
        assert "'halted', which bring messages to queue 'spare.out', with it" in brought["sentence"]
        # It is not proposed to throw away what a link would take.
        answer = scene.ask("destination", type="q", name="spare.in")
        assert kinds(answer).count("BRIDGE_STOPPED") == 1
        assert "purge" not in json.dumps(answer)
        # Nor of a queue of which nothing is known.
        scene.put(f"/queue/{queue}", "1")
        idle = scene.queue(queue, "NO_CONSUMER")
        assert idle["command"] == "imqbridgemgr start bridge -bn spare"
        assert "bridge 'spare' is STOPPED" in idle["advice"]
    finally:
        scene.run("imqbridgemgr start bridge -bn spare")
    assert shlex.split(cause["command"]) == shlex.split("imqbridgemgr start bridge -bn spare")
    assert "purge dst" in scene.queue(queue, "NO_CONSUMER")["command"]
    with scene.client() as client:
        client.subscribe("/queue/spare.out")
        client.messages(2)


def test_a_connection_of_a_bridge_that_only_sends_is_not_told_to_subscribe(scene: Scene) -> None:
    found = scene.admin.get("/v1/connections", service="bridge")["connections"]
    own = {each["holder"]: each["id"] for each in found}
    number = own["bridge moves, link idle, target"]
    cause = scene.cause("OF_BRIDGE", "connection", id=number)
    assert cause["sentence"] == (
        f"Connection {number} (bridge moves, link idle, target) is a bridge's own and only sends: "
        "nothing is delivered to it; it has sent 0 messages."
    )
    assert cause["command"] == "imqbridgemgr query link -bn moves -ln idle"
    number = own["bridge moves, link idle, source"]
    sentences = [each["sentence"] for each in scene.ask("connection", id=number)["causes"]]
    assert f"Nothing waits in queue 'idle.in' for connection {number} (bridge moves, link" in str(
        sentences
    )
    for number in own.values():
        assert "NO_SUBSCRIPTION" not in kinds(scene.ask("connection", id=number))


def test_what_waits_for_a_link_is_counted_when_it_is_asked_about(scene: Scene) -> None:
    # Its target is away, so that it has never looked.
    before = int(scene.link("away", "LINK_WAITING")["figures"]["waiting"])
    scene.put("/queue/away.in", *map(str, range(30)))
    cause = scene.queue("away.in", "LINK_WAITING")
    assert cause["figures"]["waiting"] == before + 30
    assert f"; {before + 30} messages wait at its source" in cause["sentence"]
    assert scene.link("away", "LINK_WAITING")["figures"]["waiting"] == before + 30
