"""Each side with upstream's other side: Wherry's agent under upstream's control plane, upstream's kubelet under Wherry's.

What runs are upstream's conformance tests of nodes: pods, probes, volumes, images, environments, hooks, logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.conformance import daemons, upstream
from tests.conformance.running import REPORTS, named_secrets, prepare, run
from tests.support.cluster import Cluster, cluster

FOCUS, SKIP = r"\[NodeConformance\].*\[Conformance\]", r"\[Serial\]|\[Disruptive\]|Networking Granular"
NODE_TESTS = 100
"""So many there are at least."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("name", "other_side", "companions"),
    [
        ("agent-under-upstream", daemons.control_plane, ()),
        ("kubelet-under-wherry", daemons.kubelet, (named_secrets,)),
    ],
)
def test_the_node_tests_pass(
    name: str,
    other_side: Callable[[Cluster], AbstractContextManager[None]],
    companions: tuple[Callable[[Cluster], AbstractContextManager[None]], ...],
) -> None:
    archive = prepare()
    upstream.build_daemons()
    with cluster(f"wherry-d{os.getpid()}") as made, ExitStack() as stack:
        made.wherry("image", "load", str(archive), timeout=600)
        for use in (other_side, *companions):
            stack.enter_context(use(made))
        passed, failed = run(made, REPORTS / name, FOCUS, SKIP, processes=2)
        print(f"{name}: {len(passed)} passed, {len(failed)} failed")
        assert len(passed) + len(failed) >= NODE_TESTS, (
            "the selection is empty, or the program did not get to the tests"
        )
        assert not failed, f"see {REPORTS / name}.log"
