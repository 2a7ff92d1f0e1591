"""Each of Wherry's daemons among upstream's, and each of upstream's among Wherry's, with the conformance tests of its role.

WHERRY_CONFORMANCE_FOCUS selects other tests by name.

With programs of v1.20 only the agent is exchanged: its kube-proxy knows no `discovery.k8s.io/v1`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.conformance import daemons
from tests.conformance.daemons import ALL, API_SERVER, CONTROL_PLANE, CONTROLLERS, KUBELET, PROXY, SCHEDULER
from tests.conformance.ginkgo import Selection
from tests.conformance.running import FOCUS, named_secrets, prepare, run, unexpected, writing
from tests.support.cluster import cluster

NOT_ALONE = r"\[Serial\]|\[Disruptive\]"
NODE = r"\[sig-(node|network|storage)\].*\[Conformance\]"
NETWORK = r"\[sig-network\].*\[Conformance\]"
WORKLOADS = r"\[sig-(apps|scheduling)\].*\[Conformance\]"
CONTROL = r"\[sig-(api-machinery|apps|auth|scheduling)\].*\[Conformance\]"


@dataclass(frozen=True, slots=True)
class Mixture:
    """Upstream's daemons of a combination, options of `wherry up`, and the tests that must pass (their minimum: `least`)."""

    name: str
    upstreams: frozenset[str]
    focus: str
    least: int
    proxy_mode: str = "iptables"
    skip: str = f"{NOT_ALONE}|pull policy of Always"  # nobody serves images here, as test_upstream.py does
    up: tuple[str, ...] = ()


MIXTURES = (
    Mixture("agent-and-netproxy-under-upstream", CONTROL_PLANE, NODE, 230),
    Mixture("kubelet-and-proxy-under-wherry", frozenset({KUBELET, PROXY}), NODE, 230),
    Mixture("proxy-nftables-under-wherry", frozenset({PROXY}), NETWORK, 45, "nftables"),
    Mixture("netproxy-nftables-under-upstream", ALL - {PROXY}, NETWORK, 45, up=("--proxy-mode=nftables",)),
    Mixture("scheduler-under-wherry", frozenset({SCHEDULER}), WORKLOADS, 50),
    Mixture("controllers-under-wherry", frozenset({CONTROLLERS}), CONTROL, 150),
    Mixture("wherrys-scheduler", ALL - {SCHEDULER}, WORKLOADS, 50),
    Mixture("wherrys-controllers", ALL - {CONTROLLERS}, CONTROL, 150),
    Mixture("wherrys-api-server", ALL - {API_SERVER}, CONTROL, 150),
)
OLD_NODE_TESTS = r"\[NodeConformance\].*\[Conformance\]"
OLD = (
    Mixture("agent-under-upstream", CONTROL_PLANE, OLD_NODE_TESTS, 100, skip=f"{NOT_ALONE}|Networking Granular"),
    Mixture("kubelet-under-wherry", frozenset({KUBELET}), OLD_NODE_TESTS, 100, skip=f"{NOT_ALONE}|Networking Granular"),
)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("mixture", OLD + MIXTURES, ids=lambda mixture: mixture.name)
def test_the_tests_of_the_role_pass(mixture: Mixture) -> None:
    upstream, archive = prepare(daemons=True)
    if (upstream.minor < 24) != (mixture in OLD):
        pytest.skip(f"not asked of {upstream.version}")
    with cluster(f"wherry-c{os.getpid()}") as made:
        if mixture.up:
            made.up(*mixture.up)
        made.wherry("image", "load", str(archive), timeout=600)
        with (
            daemons.exchanged(made, mixture.upstreams, mixture.proxy_mode),
            named_secrets(made),
            writing(made, "bundles"),
        ):
            results = run(made, mixture.name, Selection(FOCUS or mixture.focus, mixture.skip))
        assert len(results) >= (1 if FOCUS else mixture.least), (
            "the selection is empty, or the program did not get to the tests"
        )
        assert not unexpected(upstream, results)
