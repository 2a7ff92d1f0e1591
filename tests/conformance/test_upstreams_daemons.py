"""The same conformance tests on upstream's own daemons: each test that passes there must pass on Wherry's.

Runs after test_upstream.py, on the same machines, containerd, images and etcd, and compares the two reports.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.conformance import daemons, ginkgo
from tests.conformance.mirror import OPTION, mirror
from tests.conformance.running import GROUPS, PROCESSES, prepare, run
from tests.support.machines import at_once, machines


@pytest.mark.timeout(0)
@pytest.mark.parametrize("group", GROUPS)
def test_what_passes_on_upstreams_daemons_passes_on_wherrys(group: str) -> None:
    upstream, archive = prepare(daemons=True)
    if upstream.minor < 24:
        pytest.skip("v1.20's kube-proxy does not know discovery.k8s.io/v1")
    wherrys = {result.name: result.passed for result in ginkgo.read(upstream.kept / "reports" / group)}
    assert wherrys, f"there is no report of Wherry's: run test_upstream.py -k {group} first"
    processes = 1 if group == "serial" else PROCESSES
    with machines(f"wherry-c{os.getpid()}", (0, 0), up=("--proxy=upstream",), each=(OPTION,)) as made:
        at_once(lambda machine: machine.wherry("image", "load", str(archive), timeout=600), made.all)
        with mirror(made.first, archive), daemons.exchanged_on_all(made, daemons.ALL):
            start = time.monotonic()
            results = run(made.first, f"{group}-upstream", GROUPS[group], processes, nodes=len(made))
            print(f"{(time.monotonic() - start) / 60:.1f} minutes")
    assert len(results) == len(wherrys)
    assert not [result.name for result in results if result.passed and not wherrys.get(result.name)]
