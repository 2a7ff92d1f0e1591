"""Reading agents' resource metrics, and what two looks at a node say."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from control.event_loop.pacing import SLICE_BYTES
from control.resource_metrics import sample as sample_module
from control.resource_metrics.objects import node_metrics, pod_metrics
from control.resource_metrics.sample import NodeSample, Point, parse
from control.resource_metrics.usage import between
from kube import duration

KEY = ("default", "web", "c")
NOW = 1700000099.0

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


async def test_a_scrape_is_read_into_points_with_their_own_times() -> None:
    sample = await parse(TEXT, now=NOW)
    assert sample.node == Point(1700000012.0, 100.25, 1073741824.0)
    assert dict(sample.containers) == {KEY: Point(1700000010.0, 4.5, 2097152.0, 1.69999999e09)}


async def test_escaped_label_values_and_broken_lines_are_read_as_far_as_they_make_sense() -> None:
    text = 'container_cpu_usage_seconds_total{container="a\\"}b\\\\",namespace="n",pod="p"} 1\nnode_cpu_usage_seconds_total x\n'
    text += 'container_memory_working_set_bytes{container="a\\"}b\\\\",namespace="n",pod="p"} 2\n'
    sample = await parse(text, now=5.0)
    assert list(sample.containers) == [("n", "p", 'a"}b\\')]
    assert sample.node is None


NUMBERS = ("nan", "inf", "-inf", "-1", "1e300", "1e18", "9007199254740992", "0", "0x10", "1_0", "", "٣", "1" * 400)
TIMES = ("0", "-1", "1", str((2**35 - 1) * 1000), str(10**15), str(10**30), str(2**63), "1e3", "nan", "9" * 5000)


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("number", NUMBERS)
async def test_whatever_a_node_reports_the_metrics_of_all_nodes_can_be_listed(number: str, time: str) -> None:
    named = 'container_{}{{container="c",namespace="default",pod="web"}}'
    families = ["node_cpu_usage_seconds_total", "node_memory_working_set_bytes"]
    families += [
        named.format(each) for each in ("cpu_usage_seconds_total", "memory_working_set_bytes", "start_time_seconds")
    ]
    strange = "".join(f"{family} {number} {time}\n" for family in families)
    usual = "".join(f"{family} 1 1700000010000\n" for family in families)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pod = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]},
    }
    samples = [await parse(text, 1700000000.0) for text in (strange, usual, strange)]
    shown = []
    for older, newer in pairwise([None, *samples]):
        usage = between(older, newer)
        if usage.node is not None:
            shown.append(node_metrics({"metadata": {"name": "n"}}, usage.node, now))
        shown.append(pod_metrics(pod, usage.containers, now))
    for found in shown:
        assert found is None or duration.parse(found["window"]) < 2**63 / 1e9, "what Go's time.Duration holds"


@pytest.mark.parametrize(("seconds", "read"), [(-3601, False), (-3599, True), (3599, True), (3601, False)])
async def test_points_whose_time_is_far_from_the_servers_clock_are_left_out(seconds: int, read: bool) -> None:
    stamp = (1700000000 + seconds) * 1000
    text = f"node_cpu_usage_seconds_total 1 {stamp}\nnode_memory_working_set_bytes 1 {stamp}\n"
    assert ((await parse(text, 1700000000.0)).node is not None) == read


async def test_others_have_their_turns_while_a_long_scrape_is_read() -> None:
    line = 'container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 1\n'
    reading = asyncio.create_task(parse(line * (8 * SLICE_BYTES // len(line)), 1.0))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 8


async def test_lines_and_containers_beyond_all_measure_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'node_cpu_usage_seconds_total{a="' + "x" * 5000 + '"} 1\n' + TEXT
    assert (await parse(text, NOW)).node == (await parse(TEXT, NOW)).node
    monkeypatch.setattr(sample_module, "MOST_CONTAINERS", 3)
    lines = (
        f'container_{family}{{container="c{number}",namespace="n",pod="p"}} 1\n'
        for family in ("cpu_usage_seconds_total", "memory_working_set_bytes")
        for number in range(5)
    )
    assert len((await parse("".join(lines), 1.0)).containers) == 3


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
