"""Evaluation of one metric of an autoscaler: reads it, compares it with its target, returns replicas and the current value.

Resource and container metrics aim at a share of the requests or at an amount a pod; pods metrics at an amount a pod;
object and external metrics at a total, or at an amount for each replica. Names, reasons and messages are upstream's
(computeReplicasForMetric in pkg/controller/podautoscaler/horizontal.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from control.controllers.autoscaling import replicas as rules
from control.controllers.autoscaling.metrics_client import ListedUsage, MetricsClient
from control.controllers.autoscaling.replicas import MetricsError, Proposal, Tolerances
from control.controllers.autoscaling.selector_limit import check_metric
from control.controllers.autoscaling.settings import Startup
from control.controllers.autoscaling.target import Targets, UnknownKind
from kube.api import autoscaling_v2, core_v1
from kube.errors import StatusError
from kube.quantity import milli, render
from kube.selectors import printed


@dataclass(frozen=True, slots=True)
class Situation:
    """State that all metrics of an autoscaler are evaluated with."""

    namespace: str
    spec_replicas: int
    status_replicas: int
    selector: str
    pods: Sequence[core_v1.Pod]
    tolerances: Tolerances
    startup: Startup
    now: datetime
    listed: ListedUsage = field(default_factory=ListedUsage)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A metric's recommendation; `name` is what events call it."""

    replicas: int
    name: str
    status: autoscaling_v2.MetricStatus


class MetricFailed(Exception):
    """A metric gives no number: `reason` and `detail` for the condition, the message for the event."""

    def __init__(self, reason: str, detail: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.detail = reason, detail


class Calculator:
    """Answers for one metric at a time."""

    def __init__(self, metrics: MetricsClient, targets: Targets) -> None:
        self._metrics, self._targets = metrics, targets

    async def outcome(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        """Return a metric's recommendation; raises MetricFailed."""
        ways = {
            "Resource": (self._resource, "FailedGetResourceMetric"),
            "ContainerResource": (self._container, "FailedGetContainerResourceMetric"),
            "Pods": (self._pods, "FailedGetPodsMetric"),
            "Object": (self._object, "FailedGetObjectMetric"),
            "External": (self._external, "FailedGetExternalMetric"),
        }
        way, reason = ways.get(metric.type, (None, ""))
        if way is None:
            message = f'unknown metric source type "{metric.type}"'
            raise MetricFailed("InvalidMetricSourceType", message, message)
        try:
            check_metric(metric)
            return await way(metric, at)
        except MetricsError as error:
            raise MetricFailed(reason, str(error), f"{_failed(metric)}: {error}") from error

    # -- metrics of the pods themselves -----------------------------------------------------------------------------
    async def _resource(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        source = metric.resource
        assert source is not None
        proposal, name, current = await self._of_resource(source.name, source.target, "", at)
        seen = autoscaling_v2.ResourceMetricStatus(name=source.name, current=current)
        status = autoscaling_v2.MetricStatus(type="Resource", resource=seen)
        return Outcome(proposal.replicas, name, status)

    async def _container(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        source = metric.container_resource
        assert source is not None
        proposal, name, current = await self._of_resource(source.name, source.target, source.container, at)
        seen = autoscaling_v2.ContainerResourceMetricStatus(
            name=source.name, container=source.container, current=current
        )
        return Outcome(
            proposal.replicas, name, autoscaling_v2.MetricStatus(type="ContainerResource", container_resource=seen)
        )

    async def _of_resource(
        self, resource: str, target: autoscaling_v2.MetricTarget | None, container: str, at: Situation
    ) -> tuple[Proposal, str, autoscaling_v2.MetricValueStatus]:
        target = target or autoscaling_v2.MetricTarget()
        if target.average_value is None and target.average_utilization is None:
            raise MetricsError(
                f"invalid {resource} metric source: neither an average utilization target nor an average value "
                "(usage) target was set"
            )
        what = "usage" if target.average_value is not None else "utilization"
        try:
            try:
                found = await self._metrics.resource(resource, at.namespace, at.selector, container, at.listed)
            except MetricsError as error:
                raise MetricsError(f"unable to get metrics for resource {resource}: {error}") from error
            common = (at.pods, found, resource, at.tolerances, at.startup, at.now)
            if target.average_value is not None:
                proposal = rules.by_value(at.spec_replicas, milli(target.average_value), *common)
                current = autoscaling_v2.MetricValueStatus(average_value=_amount(proposal.usage))
                return proposal, f"{resource} resource", current
            proposal = rules.by_utilization(at.spec_replicas, target.average_utilization or 1, *common, container)
        except MetricsError as error:
            raise MetricsError(f"failed to get {resource} {what}: {error}") from error
        current = autoscaling_v2.MetricValueStatus(
            average_utilization=proposal.utilization, average_value=_amount(proposal.usage)
        )
        kind = "container resource" if container else "resource"
        return proposal, f"{resource} {kind} utilization (percentage of request)", current

    async def _pods(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        source = metric.pods
        assert source is not None
        wanted, target = _identifier(source.metric), milli(_target(source.target).average_value or 0)
        try:
            found = await self._metrics.pods(wanted, at.namespace, at.selector)
        except MetricsError as error:
            raise MetricsError(f"unable to get metric {wanted.name}: {error}") from error
        proposal = rules.by_value(at.spec_replicas, target or 1, at.pods, found, "", at.tolerances, at.startup, at.now)
        seen = autoscaling_v2.PodsMetricStatus(
            metric=source.metric, current=autoscaling_v2.MetricValueStatus(average_value=_amount(proposal.usage))
        )
        status = autoscaling_v2.MetricStatus(type="Pods", pods=seen)
        return Outcome(proposal.replicas, f"pods metric {wanted.name}", status)

    # -- metrics of other objects ----------------------------------------------------------------------------------
    async def _object(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        source = metric.object
        assert source is not None
        wanted = _identifier(source.metric)
        about = source.described_object or autoscaling_v2.CrossVersionObjectReference()
        try:
            described = await self._targets.resource(about)
            usage = await self._metrics.object(wanted, at.namespace, described.target, about.name)
        except (MetricsError, UnknownKind, StatusError) as error:
            place = f"{about.kind} {at.namespace}/{about.name}"
            raise MetricsError(f"unable to get metric {wanted.name}: {place} {error}") from error
        replicas, current, shared = self._judge(usage, _target(source.target), at)
        name = _external_name(wanted) if shared else f"{about.kind} metric {wanted.name}"
        seen = autoscaling_v2.ObjectMetricStatus(
            described_object=source.described_object, metric=source.metric, current=current
        )
        return Outcome(replicas, name, autoscaling_v2.MetricStatus(type="Object", object=seen))

    async def _external(self, metric: autoscaling_v2.MetricSpec, at: Situation) -> Outcome:
        source = metric.external
        assert source is not None
        wanted = _identifier(source.metric)
        try:
            usage = await self._metrics.external(wanted, at.namespace)
        except MetricsError as error:
            what = f"{at.namespace}/{wanted.name}/{printed(wanted.selector)}"
            raise MetricsError(f"unable to get external metric {what}: {error}") from error
        replicas, current, _ = self._judge(usage, _target(source.target), at)
        seen = autoscaling_v2.ExternalMetricStatus(metric=source.metric, current=current)
        status = autoscaling_v2.MetricStatus(type="External", external=seen)
        return Outcome(replicas, _external_name(wanted), status)

    def _judge(
        self, usage: int, target: autoscaling_v2.MetricTarget, at: Situation
    ) -> tuple[int, autoscaling_v2.MetricValueStatus, bool]:
        if target.average_value is not None:
            proposal = rules.by_share(at.status_replicas, usage, milli(target.average_value) or 1, at.tolerances)
            shown = autoscaling_v2.MetricValueStatus(average_value=_amount(proposal.usage))
            return proposal.replicas, shown, True
        if target.value is None:
            raise MetricsError("invalid metric source: neither a value target nor an average value target was set")
        replicas = rules.by_total(at.spec_replicas, usage, milli(target.value) or 1, at.pods, at.tolerances)
        return replicas, autoscaling_v2.MetricValueStatus(value=_amount(usage)), False


def _failed(metric: autoscaling_v2.MetricSpec) -> str:
    """Return the beginning of upstream's message for a metric that could not be read."""
    if metric.resource is not None:
        return f"failed to get {metric.resource.name} resource metric value"
    if metric.container_resource is not None:
        return f"failed to get {metric.container_resource.name} container metric value"
    if metric.pods is not None:
        return "failed to get pods metric value"
    if metric.object is not None:
        return "failed to get object metric value"
    name = _identifier(metric.external.metric).name if metric.external is not None else ""
    return f"failed to get {name} external metric value"


def _identifier(found: autoscaling_v2.MetricIdentifier | None) -> autoscaling_v2.MetricIdentifier:
    return found or autoscaling_v2.MetricIdentifier()


def _target(found: autoscaling_v2.MetricTarget | None) -> autoscaling_v2.MetricTarget:
    return found or autoscaling_v2.MetricTarget()


def _external_name(metric: autoscaling_v2.MetricIdentifier) -> str:
    return f"external metric {metric.name}({printed(metric.selector)})"


def _amount(thousandths: int) -> str:
    return render(Decimal(thousandths).scaleb(-3))
