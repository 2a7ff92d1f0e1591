"""The journals of a real control plane and a real agent, which the API server merges over its connection to the node."""

from __future__ import annotations

import json

from tests.support.cluster import Cluster
from tests.support.pods import FOR_EVER, apply, container, pod, wait_running


def test_the_agents_decisions_about_a_pod_are_read_through_the_api_server(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("web", container(FOR_EVER)))
    wait_running(shared, ns, "web")
    path = f"/wherry/v1/journal?group=&version=v1&resource=pods&namespace={ns}&name=web"
    page = json.loads(shared.kubectl("get", "--raw", path).stdout)
    assert not page.get("notKnown")
    found = [f"{entry['actor']}: {entry['text']}" for entry in page["entries"]]
    for start in (
        "default-scheduler: chose ",
        "kubelet: pod sandbox and network were set up in ",
        "kubelet: volumes were mounted in ",
        "kubelet: Started: ",
    ):
        assert any(text.startswith(start) for text in found), (start, found)
