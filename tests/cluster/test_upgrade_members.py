"""Upgrade of a control plane of three, one member after the other: old and new API servers share an etcd meanwhile."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, eventually
from tests.support.etcd import needs_etcd
from tests.support.history import History
from tests.support.kube import container_ids, wait_pods, web
from tests.support.load import Load
from tests.support.machines import Machines, control_planes
from tests.support.older_version import COMMIT, ROOT, commits, head, install_on, needs_history, upgrade

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600), needs_history(), needs_etcd]


@pytest.fixture
def made(older: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three members of the older version."""
    folder = tmp_path_factory.mktemp("installed")
    with control_planes(
        f"wherry-v{os.getpid()}", tmp_path_factory.mktemp("etcd"), lambda found: install_on(found, older, folder)
    ) as (found, _):
        found.wait_ready()
        yield found


def served(by: Cluster) -> dict[str, str]:
    """Return what a member returns for the objects of the test: name -> resourceVersion and content."""
    lists = [by.get(kind, "-n", "default")["items"] for kind in ("configmaps", "services", "replicasets", "pods")]
    return {
        f"{item['kind']} {item['metadata']['name']}": json.dumps(item, sort_keys=True)
        for each in lists
        for item in each
    }


def test_old_and_new_api_servers_serve_the_same_objects_while_members_are_upgraded(made: Machines) -> None:
    first, now = made.first, head(ROOT)
    address = web(first, "default", 4)
    web(first, "default", 2, name="work")
    containers = {key: value for key, value in container_ids(first).items() if key.startswith("default/web-")}
    with History(made, "app=work", seconds=3000).running() as history, Load(first, address, pause=0.1) as load:
        eventually(lambda: history.progress() > 10, "the writers write")
        expected = [COMMIT] * 3
        for number, machine in enumerate(made):
            machine.wherry("snapshot", "save")
            upgrade(machine)
            made.wait_ready()
            expected[number] = now
            assert commits(made)[1:] == expected
            count = history.progress()
            eventually(lambda c=count: history.progress() > c + 10, "writes go on by every member")  # type: ignore[misc]
            for replicas in (3, 2):
                machine.kubectl("scale", "deployment", "work", f"--replicas={replicas}")
                wait_pods(first, "default", "app=work", replicas)
    assert [answer for answer in load.answers if not re.fullmatch(r"web-\S+ v1", answer)] == []
    assert {key: value for key, value in container_ids(first).items() if key in containers} == containers
    one, *others = [served(machine) for machine in made]
    assert all(other == one for other in others)
