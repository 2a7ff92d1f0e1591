"""The autoscaler's turns, in virtual time, against an API in memory that tells the load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from control.controllers.autoscaling import controller as autoscaling
from control.controllers.autoscaling import scale_selectors
from control.controllers.autoscaling.controller import AutoscalingController
from control.controllers.autoscaling.selector_limit import LARGEST_SELECTOR
from control.controllers.autoscaling.settings import AutoscalingSettings
from control.controllers.context import Context
from control.controllers.step_counter import StepCounter
from kube import serialize
from kube.api import autoscaling_v2 as v2
from kube.api import core_v1, meta_v1
from kube.client import Response
from kube.clock import format_time
from kube.errors import StatusError
from kube.selectors import LabelSelector, parse_labels
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI

HPA = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


class World(MemoryAPI):
    """A deployment whose pods share a load, measured in thousandths of a core."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock, self.replicas, self.load = clock, 2, 0
        self.measured = True
        self.refuse_scaling = False
        self.selector = "app=web"
        self.scales: dict[str, dict[str, Any]] = {}
        """The status of other deployments' scales."""
        self.events: list[tuple[str, str]] = []
        self.requested = Counter[str]()
        self.statuses: list[v2.HorizontalPodAutoscalerStatus] = []
        self.set_replicas(2)

    def set_replicas(self, count: int) -> None:
        for number in range(max(count, self.replicas)):
            requests: dict[str, str | int | float] = {"cpu": "1"}
            container = core_v1.Container(name="c", resources=core_v1.ResourceRequirements(requests=requests))
            since = format_time(self.clock.now() - timedelta(hours=1))
            ready = core_v1.PodCondition(type="Ready", status="True", last_transition_time=since)
            pod = core_v1.Pod(
                metadata=meta_v1.ObjectMeta(name=f"web-{number}", namespace="default", labels={"app": "web"}),
                spec=core_v1.PodSpec(containers=[container]),
                status=core_v1.PodStatus(phase="Running", conditions=[ready], start_time=since),
            )
            if number < count:
                self.put(pod)
            else:
                self.remove(pod)
        self.replicas = count

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        if method == "POST" and path.endswith("/events"):
            event = json.loads(body)
            self.events.append((event["reason"], event["message"]))
        self.requested[path] += 1
        if path in self.scales and method == "GET":
            return self._json({"metadata": {}, "spec": {"replicas": 1}, "status": self.scales[path]})
        if path == SCALE and method == "GET":
            return self._json({"metadata": {"name": "web"}, **self._scale()})
        if path == SCALE and method == "PUT":
            if self.refuse_scaling:
                raise StatusError(409, "Conflict", "try again")
            self.set_replicas(json.loads(body)["spec"].get("replicas", 0))
            return self._json({})
        if path.endswith("/scale"):
            raise StatusError(404, "NotFound", 'deployments.apps "other" not found')
        if path == METRICS:
            return self._json({"items": [self._usage(n) for n in range(self.replicas)] if self.measured else []})
        if path == HPA and method == "PUT":
            changed = json.loads(body)
            found = serialize.convert(changed, v2.HorizontalPodAutoscaler)
            self.statuses.append(found.status)
            self.put(found)
            return Response(200, {}, body)
        if path.startswith(("/apis/custom", "/apis/external")):
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        return await super().request(method, path, body=body, **options)

    def _scale(self) -> dict[str, Any]:
        return {
            "spec": {"replicas": self.replicas},
            "status": {"replicas": self.replicas, "selector": self.selector},
        }

    def _usage(self, number: int) -> dict[str, Any]:
        usage = {"cpu": f"{self.load // max(1, self.replicas)}m"}
        return {
            "metadata": {"name": f"web-{number}"},
            "timestamp": format_time(self.clock.now()),
            "window": "15s",
            "containers": [{"name": "c", "usage": usage}],
        }

    def _json(self, value: Mapping[str, Any]) -> Response:
        return Response(200, {}, json.dumps(value).encode())

    def condition(self, type: str) -> tuple[str, str | None]:
        found = next(c for c in self.statuses[-1].conditions if c.type == type)
        return found.status, found.reason


def autoscaler(*metrics: v2.MetricSpec, **spec: Any) -> v2.HorizontalPodAutoscaler:
    target = v2.MetricTarget(type="Utilization", average_utilization=50)
    usual = v2.MetricSpec(type="Resource", resource=v2.ResourceMetricSource(name="cpu", target=target))
    reference = v2.CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    made: dict[str, Any] = {
        "min_replicas": 1,
        "max_replicas": 10,
        "scale_target_ref": reference,
        "metrics": list(metrics) or [usual],
    }
    return v2.HorizontalPodAutoscaler(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default"),
        spec=v2.HorizontalPodAutoscalerSpec(**(made | spec)),
    )


@contextlib.asynccontextmanager
async def running(*metrics: v2.MetricSpec, load: int = 0, **spec: Any) -> AsyncIterator[tuple[World, FakeClock]]:
    clock = FakeClock()
    world = World(clock)
    world.load = load
    world.put(autoscaler(*metrics, **spec))
    context = Context(world.client(), clock)
    controller = AutoscalingController(context, AutoscalingSettings())
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks += [asyncio.create_task(controller.run())]
    tasks.append(asyncio.create_task(context.recorders.run()))
    await settle(50)
    try:
        yield world, clock
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_new_autoscaler_scales_immediately_and_reports_it() -> None:
    async with running(load=2000) as (world, clock):
        assert world.replicas == 4
        text = "New size: 4; reason: cpu resource utilization (percentage of request) above target"
        assert ("SuccessfulRescale", text) in world.events
        assert world.condition("AbleToScale") == ("True", "SucceededRescale")
        assert world.condition("ScalingActive") == ("True", "ValidMetricFound")
        assert world.condition("ScalingLimited") == ("False", "DesiredWithinRange")
        last = world.statuses[-1]
        assert (last.current_replicas, last.desired_replicas) == (2, 4)
        assert last.current_metrics[0].resource is not None
        current = last.current_metrics[0].resource.current
        assert current is not None and (current.average_utilization, current.average_value) == (100, "1")
        await clock.advance(15)
        assert world.replicas == 4
        assert world.condition("AbleToScale") == ("True", "ReadyForNewScale")


async def test_load_that_goes_away_shrinks_it_only_after_the_window() -> None:
    async with running(load=2000) as (world, clock):
        world.load = 0
        await clock.advance(270)
        assert world.replicas == 4
        assert world.condition("AbleToScale") == ("True", "ScaleDownStabilized")
        await clock.advance(45)
        assert world.replicas == 1
        assert ("SuccessfulRescale", "New size: 1; reason: All metrics below target") in world.events
        assert world.condition("ScalingLimited") == ("True", "TooFewReplicas")


async def test_limits_of_replicas_are_applied_without_reading_metrics() -> None:
    async with running(min_replicas=3, max_replicas=5) as (world, clock):
        assert world.replicas == 3
        why = "New size: 3; reason: Current number of replicas below Spec.MinReplicas"
        assert ("SuccessfulRescale", why) in world.events
        world.set_replicas(9)
        await clock.advance(15)
        assert world.replicas == 5


async def test_a_target_at_zero_is_left_alone() -> None:
    async with running(load=2000) as (world, clock):
        world.set_replicas(0)
        await clock.advance(60)
        assert world.replicas == 0
        assert world.condition("ScalingActive") == ("False", "ScalingDisabled")


async def test_metrics_that_are_missing_are_reported_and_change_nothing() -> None:
    async with running(load=2000) as (world, clock):
        world.measured = False
        await clock.advance(15)
        assert world.replicas == 4
        assert world.condition("ScalingActive") == ("False", "FailedGetResourceMetric")
        why = (
            "failed to get cpu utilization: unable to get metrics for resource cpu: "
            "no metrics returned from resource metrics API"
        )
        assert ("FailedGetResourceMetric", why) in world.events
        first = f"invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
        assert ("FailedComputeMetricsReplicas", first) in world.events
        # What was wished for last is kept, and nothing was where no desired has ever come about.
        assert (world.statuses[-1].current_replicas, world.statuses[-1].desired_replicas) == (4, 4)
    other = v2.MetricSpec(type="External", external=v2.ExternalMetricSource(metric=v2.MetricIdentifier(name="queued")))
    async with running(other) as (world, clock):
        await clock.advance(15)
        assert (world.statuses[-1].current_replicas, world.statuses[-1].desired_replicas) == (2, 0)


async def test_with_a_metric_missing_it_grows_but_does_not_shrink() -> None:
    wanted = v2.MetricTarget(type="AverageValue", average_value="1")
    pods = v2.MetricSpec(
        type="Pods", pods=v2.PodsMetricSource(metric=v2.MetricIdentifier(name="requests"), target=wanted)
    )
    cpu = autoscaler().spec.metrics[0]
    async with running(pods, cpu, load=2000) as (world, clock):
        assert world.replicas == 4
        assert ("FailedGetPodsMetric",) == tuple({r for r, _ in world.events if r.startswith("FailedGetPods")})
        world.load = 100
        await clock.advance(330)
        assert world.replicas == 4
        assert world.condition("ScalingActive") == ("False", "FailedGetPodsMetric")


async def test_an_external_metric_without_its_api_is_reported() -> None:
    wanted = v2.MetricTarget(type="Value", value="30")
    queue = v2.ExternalMetricSource(metric=v2.MetricIdentifier(name="queue"), target=wanted)
    async with running(v2.MetricSpec(type="External", external=queue)) as (world, _):
        assert world.condition("ScalingActive") == ("False", "FailedGetExternalMetric")


async def test_a_target_that_cannot_be_read_or_written_is_reported() -> None:
    reference = v2.CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="other")
    async with running(scale_target_ref=reference) as (world, _):
        assert world.condition("AbleToScale")[1] == "FailedGetScale"
    async with running(load=2000, max_replicas=2) as (world, clock):
        world.put(autoscaler(max_replicas=10))
        world.refuse_scaling = True
        await clock.advance(15)
        assert world.condition("AbleToScale") == ("False", "FailedUpdateScale")
        reason = "New size: 4; reason: cpu resource utilization (percentage of request) above target; error: try again"
        assert ("FailedRescale", reason) in world.events


async def test_a_changed_spec_is_acted_on_at_once() -> None:
    async with running(load=900) as (world, _):
        assert world.replicas == 2
        world.put(autoscaler(min_replicas=6))
        await settle(50)
        assert world.replicas == 6


async def test_pods_selected_by_two_autoscalers_are_reported() -> None:
    other = autoscaler()
    other.metadata.name = "other"
    async with running() as (world, clock):
        assert world.condition("ScalingActive") == ("True", "ValidMetricFound")
        world.put(other)
        await clock.advance(15)
        await settle(50)
        text = "pods by selector app=web are controlled by multiple HPAs: [default/other default/web]"
        assert ("AmbiguousSelector", text) in world.events
        assert world.condition("ScalingActive") == ("False", "AmbiguousSelector")
        world.remove(other)
        await clock.advance(15)
        await settle(50)
        assert world.condition("ScalingActive") == ("True", "ValidMetricFound")


def another(world: World, number: int, labels: dict[str, str], selector: str) -> None:
    """Add an autoscaler with a deployment of one pod."""
    found = autoscaler()
    assert found.spec.scale_target_ref is not None
    found.metadata.name = found.spec.scale_target_ref.name = f"a{number}"
    meta = meta_v1.ObjectMeta(name=f"p{number}", namespace="default", labels=labels)
    world.put(core_v1.Pod(metadata=meta))
    world.scales[SCALE.replace("web", f"a{number}")] = {"replicas": 1, "selector": selector}
    world.put(found)


@pytest.mark.parametrize("alike", [True, False])
async def test_pods_are_compared_with_few_selectors_of_other_autoscalers(
    alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, original = Counter[str](), autoscaling.selects

    def selects(selector: LabelSelector, labels: Mapping[str, str], counter: StepCounter) -> Awaitable[bool]:
        compared[sys._getframe(1).f_code.co_name] += 1
        return original(selector, labels, counter)

    monkeypatch.setattr(autoscaling, "selects", selects)
    many = 40
    async with running() as (world, clock):
        for number in range(many):
            labels = {"app": "many"} if alike else {"app": "many", "tier": str(number)}
            another(world, number, labels, ",".join(f"{key}={value}" for key, value in labels.items()))
        await settle(many * 20)
        compared.clear()
        await clock.advance(15)
        await settle(many * 20)
    assert many <= compared["_autoscalers_of"] <= 4 * many


async def test_a_namespace_of_many_pods_and_selectors_is_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[int]()
    original = StepCounter.count

    async def count(counter: StepCounter, steps: int = 1) -> None:
        taken.append(steps)
        await original(counter, steps)

    monkeypatch.setattr(StepCounter, "count", count)
    many = 20
    async with running() as (world, clock):
        for number in range(many):  # no label tells which of these selects a pod
            another(
                world, number, {"n": str(number)}, f"n,n notin ({','.join(str(n) for n in range(many) if n != number)})"
            )
        await settle(many * 20)
        taken.clear()
        await clock.advance(15)
        await settle(many * 20)
    assert sum(taken) >= 2 * many * many


async def test_the_selector_of_a_scale_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[str]()
    monkeypatch.setattr(scale_selectors, "parse_labels", lambda text: (compiled.append(text), parse_labels(text))[1])
    async with running() as (world, clock):
        for selector in ("app=web", "app"):
            world.selector = selector
            for _ in range(3):
                await clock.advance(15)
                await settle(50)
    assert compiled == ["app=web", "app"]


async def test_a_condition_shows_the_beginning_of_a_large_selector() -> None:
    async with running() as (world, clock):
        world.selector = f"app,app notin ({','.join(f'{number:07}' for number in range(3000))})"
        another(world, 0, {"app": "many"}, world.selector)
        await settle(50)
        await clock.advance(15)
        await settle(50)
        assert world.condition("ScalingActive") == ("False", "AmbiguousSelector")
        message = next(c.message for c in world.statuses[-1].conditions if c.type == "ScalingActive")
        assert len(message or "") < 1000
        assert max(len(text) for _, text in world.events) < 1000


@pytest.mark.parametrize("values", [10, 10_000])
async def test_a_target_whose_selector_no_request_can_have_is_reported(values: int) -> None:
    async with running() as (world, clock):
        world.selector = f"app=web,z notin ({','.join(f'{number:07}' for number in range(values))})"
        requests = world.requested.copy()
        await clock.advance(15)
        await settle(50)
        large = len(world.selector) > LARGEST_SELECTOR
        assert large is (values > 10)
        assert world.condition("ScalingActive") == (
            ("False", "InvalidSelector") if large else ("True", "ValidMetricFound")
        )
        assert world.requested[METRICS] - requests[METRICS] == (0 if large else 1)
        message = next(c.message for c in world.statuses[-1].conditions if c.type == "ScalingActive")
        assert ("more than 65535 bytes" in (message or "")) is large and len(message or "") < 200


async def test_the_usage_of_pods_is_listed_once_for_all_metrics() -> None:
    cpu, memory = (
        v2.MetricSpec(
            type="Resource",
            resource=v2.ResourceMetricSource(name=name, target=v2.MetricTarget(type="AverageValue", average_value="1")),
        )
        for name in ("cpu", "memory")
    )
    async with running(cpu, memory, cpu, load=1500) as (world, _):
        assert world.requested[METRICS] == 1
    async with running(cpu, memory) as (world, clock):
        world.measured = False
        before = world.requested[METRICS]
        await clock.advance(15)
        await settle(50)
        assert world.requested[METRICS] - before == 1
        assert world.condition("ScalingActive") == ("False", "FailedGetResourceMetric")


async def test_nothing_is_kept_of_an_autoscaler_that_is_deleted_while_it_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(FakeClock())
    context = Context(world.client(), world.clock)
    controller = AutoscalingController(context, AutoscalingSettings())
    followed, made = context.informers.of(v2.HorizontalPodAutoscaler), autoscaler()
    followed._set("default/web", made)
    measure = controller._scale

    async def deleted_meanwhile(key: str, *given: Any) -> None:
        followed._remove(key, made)
        await measure(key, *given)

    monkeypatch.setattr(controller, "_scale", deleted_meanwhile)
    await controller.reconcile("default/web")
    assert controller._selectors.get("default/web") is None and not controller._histories
