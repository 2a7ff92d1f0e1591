"""Sonobuoy's plugin protocol on three machines: an aggregator in a pod starts plugins and gets the results of their workers.

The aggregator and the workers are programs of the tests that use the API and exchange messages as Sonobuoy's do
(tests/support/sonobuoy); tests/conformance/test_sonobuoy.py runs the same plugins with Sonobuoy itself.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import eventually
from tests.support.machines import Machines
from tests.support.sonobuoy import manifests, plugins

STATUS = "sonobuoy.hept.io/status"


@pytest.fixture
def run(three: Machines, ns3: str) -> Iterator[str]:
    """A run of all plugins in a namespace."""
    made = manifests.objects(ns3)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    three.first.kubectl("apply", "-f", "-", input=text)
    yield ns3
    three.first.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", input=text, check=False)


def status(three: Machines, namespace: str) -> dict[str, Any]:
    pod = three.first.get("pod", manifests.POD, "-n", namespace)
    phase = pod["status"].get("phase")
    assert phase != "Failed", three.first.kubectl("logs", manifests.POD, "-n", namespace).stdout[-2000:]
    found: dict[str, Any] = json.loads(pod["metadata"].get("annotations", {}).get(STATUS, "{}"))
    return found


def test_an_aggregator_gets_the_results_of_plugins_from_their_workers(three: Machines, run: str) -> None:
    nodes = [machine.node for machine in three]
    found = eventually(
        lambda: seen if (seen := status(three, run)).get("status") == "complete" else None, "all results", 120
    )
    plugins.check_status(found, nodes)
    archive = ("base64", "/tmp/sonobuoy/results.tar.gz")
    text = three.first.kubectl("exec", manifests.POD, "-n", run, "--", *archive).stdout
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text))) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers() if each.isfile()}
        texts = {name: file.read().decode(errors="replace") for name, file in files.items() if file is not None}
    plugins.check_reports(texts, nodes)

    def left() -> list[Any]:
        selector = ("-n", run, "-l", "sonobuoy-run")
        return [*three.first.get("pods", *selector)["items"], *three.first.get("daemonsets", *selector)["items"]]

    eventually(lambda: not left(), "the plugins' pods are deleted by their label")
    assert len(three.first.get("secrets", "-n", run, "-l", "sonobuoy-run")["items"]) == len(plugins.definitions())
    three.first.kubectl("delete", "pod", manifests.POD, "-n", run)
    eventually(
        lambda: not three.first.get("secrets", "-n", run, "-l", "sonobuoy-run")["items"],
        "the garbage collector deletes what the aggregator's pod owns",
    )
