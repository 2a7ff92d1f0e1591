"""Bad input to a cluster for tests: one clear sentence each, and a wait in vain costs no time if time is virtual."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.testing.test_plugin import run
from wherry.testing import AsyncCluster, Cluster, ClusterError, Exit, Run, WaitError

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "main", "image": "x"}]},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(time="virtual") as found:
        found.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}})
        yield found


UNKNOWN = {**POD, "spec": {**POD["spec"], "restartPolicie": "Never"}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.apply(UNKNOWN), r"^Pod a: .*\.spec\.restartPolicie: field not declared in schema$"),
        (lambda c: c.create(UNKNOWN), r'strict decoding error: unknown field "spec\.restartPolicie"$'),
        (lambda c: c.patch("cm/map", {"dat": {}}), r'strict decoding error: unknown field "dat"$'),
        (lambda c: c.apply("kind: Pod\nkind: Job\n"), "^the text: not YAML: line 1: the key kind is there twice$"),
        (lambda c: c.apply({**POD, "kind": "Pot"}), "^no kind Pot in v1: "),
        (lambda c: c.wait("pot/a", "Ready"), "^no resource 'pot'$"),
        (lambda c: c.wait("pod", "Ready"), "^'pod' names no object: write resource/name, for example deployment/web$"),
        (
            lambda c: c.wait("deployment/web", "status.availible=3"),
            "^no condition: Deployment has no field status.avail",
        ),
    ],
)
def test_a_mistake_is_one_sentence(cluster: Cluster, call: Callable[[Cluster], Any], message: str) -> None:
    with pytest.raises(ClusterError, match=message) as caught:
        call(cluster)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("Ready", "pod/none: not Ready within 3600 s; last seen: it does not exist"),
        (lambda obj: False, "pod/none: not what the function wants within 3600 s; last seen: it does not exist"),
    ],
)
def test_a_wait_in_vain_ends_at_once_in_virtual_time(cluster: Cluster, condition: Any, message: str) -> None:
    begun, cpu = cluster.now, time.process_time()
    with pytest.raises(WaitError, match=f"^{message}$"):
        cluster.wait("pod/none", condition)
    assert time.process_time() - cpu < 5
    assert (cluster.now - begun).total_seconds() < 3601


def test_a_wait_in_vain_says_what_it_last_saw(cluster: Cluster) -> None:
    cluster.apply(POD)
    with pytest.raises(
        WaitError, match=r"^pod/a: not status\.phase=Failed within 60 s; last seen: status\.phase=Running, "
    ):
        cluster.wait("pod/a", "status.phase=Failed", timeout=60)


def test_a_script_that_no_container_used_is_an_error_at_the_end() -> None:
    with (
        pytest.raises(ClusterError, match=r"^no container has started that a script is for: 'wbe-\*'; correct"),
        Cluster() as c,
    ):
        c.pods.script("wbe-*", Exit(1))
        c.pods.script("other", Exit(1), optional=True)
        c.pods.script("a", Run())
        c.pods.script("*", Run(), container="mian")
        c.apply(POD)
        with pytest.raises(ClusterError, match=r"'wbe-\*', '\*' \(container mian\); "):
            c.wait("pod/a", "Ready") and c.pods.check_scripts()
        c.pods.script("a", Run(), container="m*")
        c.pods.kill("a")
        c.wait("pod/a", "Ready")
        c.apply({**POD, "metadata": {"name": "c"}, "spec": {"containers": [{"name": "mian", "image": "x"}]}})
        c.wait("pod/c", "Ready")


async def test_an_exception_is_not_hidden_by_an_unused_script() -> None:
    with pytest.raises(ZeroDivisionError):
        async with AsyncCluster(0) as cluster:
            cluster.pods.script("x", Exit(1))
            raise ZeroDivisionError


def test_the_plugin_complains_of_an_unused_script_only_if_the_test_has_passed(tmp_path: Path) -> None:
    status, output = run(
        tmp_path,
        """
from datetime import UTC, datetime

def test_one(kubernetes):
    kubernetes.pods.script("wbe-*", Exit(1))

@pytest.mark.kubernetes(time="virtual", start=datetime(2026, 1, 1, tzinfo=UTC))
def test_two(kubernetes):
    kubernetes.pods.script("wbe-*", Exit(1))

@pytest.mark.parametrize("time", [pytest.param("real", marks=pytest.mark.kubernetes(time="real")),
    pytest.param("own", marks=pytest.mark.kubernetes(time="virtual", start=datetime(2026, 1, 1, tzinfo=UTC)))])
def test_fails(kubernetes, time):
    kubernetes.pods.script("wbe-*", Exit(1))
    assert False

def test_next(kubernetes): pass
""",
    )
    assert (status, "2 failed, 3 passed, 2 errors" in output) == (1, True), output
    assert output.count("no container has started that a script is for: 'wbe-*'; correct the pattern") >= 2
    assert "Traceback" not in output and "clusters.py" not in output
