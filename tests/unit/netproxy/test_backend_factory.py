"""The backend of a proxy mode, and what is logged about it."""

import pytest

from netproxy import backend_factory
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.settings import FixedChainSettings
from tests.support.clock import FakeClock


@pytest.mark.parametrize(
    ("installed", "host_ports", "logged"), [("legacy", True, True), ("nft", True, False), ("legacy", False, False)]
)
async def test_host_ports_in_other_tables_than_those_of_services_are_logged(
    installed: str, host_ports: bool, logged: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def installed_flavour(family: int) -> str:
        return installed

    monkeypatch.setattr(backend_factory, "installed_flavour", installed_flavour)
    config = ProxyConfig(iptables_flavour="nft", pod_network=PodNetworkConfig(host_ports=host_ports))
    await backend_factory.build(config, "iptables", FixedChainSettings(), (), FakeClock())
    assert ("host ports of pods may get what is for Services" in caplog.text) == logged
