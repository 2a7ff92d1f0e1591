"""The pages of docs/tasks/ for clusters of several nodes, typed as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.test_tasks import NAMES, SEVERAL_NODES, follow
from tests.support import images
from tests.support.machines import Machines


@pytest.fixture(scope="module")
def several(three: Machines) -> Machines:
    for machine in three:
        machine.load(*(images.busybox(name) for name in NAMES))
    return three


@pytest.mark.parametrize("page", SEVERAL_NODES)
def test_a_page_for_several_nodes_shows_what_comes(several: Machines, ns3: str, tmp_path: Path, page: str) -> None:
    follow(page, several.first, ns3, tmp_path)
