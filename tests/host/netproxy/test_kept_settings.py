"""Kernel settings without which policies judge nothing, changed by others while the role runs."""

import asyncio

import pytest

from netproxy.slim_objects import SlimMeta, SlimNamespace
from netproxy.sysctl import network_settings
from tests.host.netproxy.conftest import PODS, Site, populated, running, until
from tests.support.policies import pod, policy

A, B = PODS["pod-a"], PODS["pod-b"]


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_a_policy_holds_again_after_others_take_bridged_frames_from_it(site: Site) -> None:
    wanted = network_settings(site.config.families, "cni0", "wherry-vxlan", ipvs=False)
    changed = {name: "1" if name.endswith("accept_ra") else "0" for name in wanted if "wherry-vxlan" not in name}

    def read(name: str) -> str:
        return site.node.run("cat", f"/proc/sys/{name}").strip()

    def write(name: str, value: str) -> None:
        site.node.run("sh", "-c", f"echo {value} > /proc/sys/{name}")

    async def check() -> None:
        api = populated(
            SlimNamespace(SlimMeta(name="default")),
            pod("a", A, labels={"app": "a"}),
            pod("b", B),
            policy("nobody", podSelector={"matchLabels": {"app": "a"}}),
        )
        async with running(site.config, api):
            await until(lambda: site.error(site.pods["pod-b"], A, 8080) == "ETIMEDOUT", "pod-a is isolated")
            for name, value in changed.items():
                await asyncio.to_thread(write, name, value)
            # What this is about: until the settings are back, the policy judges nothing between the two.
            assert await asyncio.to_thread(site.fetch, site.pods["pod-b"], A, 8080) == "pod-a"
            await until(lambda: all(read(name) == wanted[name] for name in changed), "the settings are back", 30)
            assert await asyncio.to_thread(site.error, site.pods["pod-b"], A, 8080) == "ETIMEDOUT"

    site.node.inside(check)
