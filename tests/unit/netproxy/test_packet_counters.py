from __future__ import annotations

from typing import Any

from netproxy import metrics
from netproxy.iptables.backend import IPTablesBackend
from netproxy.iptables.packet_counters import PacketCounters
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.iptables_chains import counts_localhost
from tests.support.iptables_in_memory import RecordingWriter

FORWARD, LOCAL = ("filter", "KUBE-FORWARD"), ("nat", "WHERRY-LOCAL-NODEPORTS")


def value(counter: Any) -> float:
    return float(counter._value.get())


async def test_metrics_follow_the_kernels_counters_also_where_a_rule_is_written_anew() -> None:
    writer, settings = RecordingWriter(), FixedChainSettings()
    backend = IPTablesBackend(writer, RuleSettings(), settings)
    await backend.start({})
    dropped, accepted = value(metrics.INVALID_DROPPED), value(metrics.LOCALHOST_NODE_PORTS)
    for (invalid, entered, left), reported in (((5, 10, 4), (5, 6)), ((8, 11, 4), (8, 7)), ((2, 1, 0), (10, 8))):
        writer.counted = {FORWARD: [invalid, 99, 99], LOCAL: [entered, left]}
        await backend.count_packets()
        assert value(metrics.INVALID_DROPPED) - dropped == reported[0]
        assert value(metrics.LOCALHOST_NODE_PORTS) - accepted == reported[1]


async def test_what_is_not_there_is_not_counted() -> None:
    """The rule is not written where liberal tracking is asked for, nor are localhost's where its node ports are not served."""
    for settings in (
        FixedChainSettings(drop_invalid=False, localhost_node_ports=False),
        FixedChainSettings(family=6, drop_invalid=False),
        FixedChainSettings(drop_invalid=False, node_port_cidrs=("192.0.2.0/24",)),
    ):
        writer = RecordingWriter()
        await IPTablesBackend(writer, RuleSettings(family=settings.family), settings).start({})
        assert not counts_localhost(settings) and writer.tables["nat"]["WHERRY-LOCAL-NODEPORTS"] == []
        before = value(metrics.INVALID_DROPPED), value(metrics.LOCALHOST_NODE_PORTS)
        writer.counted = {FORWARD: [7], LOCAL: [7, 0]}
        await PacketCounters(writer).update(settings)
        assert (value(metrics.INVALID_DROPPED), value(metrics.LOCALHOST_NODE_PORTS)) == before
    await PacketCounters(RecordingWriter()).update(FixedChainSettings())  # no chain yet: another time
