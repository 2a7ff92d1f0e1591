"""Reading agents' resource metrics, and what two looks at a node say."""

from datetime import UTC, datetime

import pytest

from control.resource_metrics.objects import pod_metrics
from control.resource_metrics.sample import NodeSample, Point, parse
from control.resource_metrics.usage import between

KEY = ("default", "web", "c")

TEXT = """# HELP container_cpu_usage_seconds_total Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="default",pod="web"} 4.5 1700000010000
container_cpu_usage_seconds_total{container="half",namespace="default",pod="web"} 1 1700000010000
container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 2.097152e+06 1700000010000
container_start_time_seconds{container="c",namespace="default",pod="web"} 1.69999999e+09
node_cpu_usage_seconds_total 100.25 1700000012000
node_memory_working_set_bytes 1.073741824e+09 1700000012000
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 5 1700000010000
scrape_error 0
"""


def test_a_scrape_is_read_into_points_with_their_own_times() -> None:
    sample = parse(TEXT, now=1700000099.0)
    assert sample.node == Point(1700000012.0, 100.25, 1073741824.0)
    assert dict(sample.containers) == {KEY: Point(1700000010.0, 4.5, 2097152.0, 1.69999999e09)}


def test_escaped_label_values_and_broken_lines_are_read_as_far_as_they_make_sense() -> None:
    text = 'container_cpu_usage_seconds_total{container="a\\"}b\\\\",namespace="n",pod="p"} 1\nnode_cpu_usage_seconds_total x\n'
    text += 'container_memory_working_set_bytes{container="a\\"}b\\\\",namespace="n",pod="p"} 2\n'
    sample = parse(text, now=5.0)
    assert list(sample.containers) == [("n", "p", 'a"}b\\')]
    assert sample.node is None


@pytest.mark.parametrize(
    ("older", "newer", "cores", "window"),
    [
        (Point(100, 5, 1, 50), Point(110, 10, 2, 50), 0.5, 10),
        (None, Point(110, 10, 2, 100), 1.0, 10),
        (Point(100, 5, 1, 50), Point(110, 2, 2, 106), 0.5, 4),
        (None, Point(110, 10, 2), None, None),
        (Point(100, 5, 1, 50), Point(100.2, 6, 2, 50), None, None),
        (Point(100, 5, 1), Point(110, 2, 2), None, None),
    ],
    ids=["a rise", "started since", "restarted since", "no start known", "too close", "fell without a start"],
)
def test_cpu_is_the_rise_over_the_window(
    older: Point | None, newer: Point, cores: float | None, window: float | None
) -> None:
    before = NodeSample(None, {KEY: older} if older else {})
    usage = between(before, NodeSample(None, {KEY: newer})).containers.get(KEY)
    assert (usage and (usage.cpu, usage.window, usage.memory)) == (None if cores is None else (cores, window, 2))


def test_a_pod_is_shown_when_every_running_container_is_measured() -> None:
    status = [{"name": name, "state": {"running": {}}} for name in ("c", "d")]
    pod = {
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "setup"}]},
        "status": {
            "containerStatuses": status,
            "initContainerStatuses": [{"name": "setup", "state": {"terminated": {}}}],
        },
    }
    now = datetime(2026, 1, 1, tzinfo=UTC)
    points = {("default", "web", name): Point(110, 10, 4096, 100) for name in ("c", "d")}
    usage = between(None, NodeSample(None, points)).containers
    shown = pod_metrics(pod, usage, now)
    assert shown is not None
    assert shown["containers"] == [{"name": n, "usage": {"cpu": "1", "memory": "4Ki"}} for n in ("c", "d")]
    assert (shown["window"], shown["timestamp"]) == ("10s", "1970-01-01T00:01:50Z")
    assert shown["metadata"]["labels"] == {"app": "web"}
    assert pod_metrics(pod, {k: v for k, v in usage.items() if k[2] == "c"}, now) is None
