"""Prometheus is told how the journal stands, read by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.admin.metrics.journal import JournalCollector
from gateway.journal.journal import JournalStanding


def test_lines_octets_losses_and_whether_it_has_stopped() -> None:
    registry = CollectorRegistry()
    registry.register(
        JournalCollector(lambda: JournalStanding("all", lines=5, octets=700, lost=2, stopped=True))
    )
    families = text_string_to_metric_families(generate_latest(registry).decode())
    assert {sample.name: sample.value for family in families for sample in family.samples} == {
        "stomp_gateway_journal_lines_total": 5,
        "stomp_gateway_journal_octets_total": 700,
        "stomp_gateway_journal_lost_lines_total": 2,
        "stomp_gateway_journal_stopped": 1,
    }
