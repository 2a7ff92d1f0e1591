"""The packet table (tests/support/packet_cases.py) as real packets; the IPVS mode's go through tests/vm."""

import pytest

from netproxy.backend import Backend
from netproxy.iptables.backend import IPTablesBackend
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.xtables.writer import RestoreWriter
from tests.support.packet_cases import FIXED, RULES
from tests.support.packet_site import wrong_packets


def backend(mode: str) -> Backend:
    if mode == "nftables":
        return NFTablesBackend(NftWriter(in_process=True), RULES, FIXED)
    return IPTablesBackend(RestoreWriter(mode), RULES, FIXED)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["nft", "legacy", "nftables"])
def test_real_packets_end_as_the_table_specifies(mode: str) -> None:
    wrong = wrong_packets(backend(mode), {}, localhost=mode != "nftables")
    assert not wrong, "\n".join(wrong)
