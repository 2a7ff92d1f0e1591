"""HorizontalPodAutoscalers: every sync period, measure, decide, and set the replicas of what is scaled.

Each autoscaler comes round once a period, and at once when it is new or its spec has changed. What was wished and done
before is kept in memory, so a new leader begins with the present number of replicas.
Upstream: pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import msgspec

from control.controllers.autoscaling import behavior as shaping
from control.controllers.autoscaling.calculate import Calculator, MetricFailed, Situation
from control.controllers.autoscaling.metrics_client import MetricsClient
from control.controllers.autoscaling.replicas import Tolerances
from control.controllers.autoscaling.scale_selectors import ScaleSelectors
from control.controllers.autoscaling.selector_limit import problem_of_target, shortened
from control.controllers.autoscaling.settings import DEFAULTS, AutoscalingSettings
from control.controllers.autoscaling.status import Outlook
from control.controllers.autoscaling.target import Targets, UnknownKind
from control.controllers.context import Context
from control.controllers.step_counter import StepCounter, selects
from kube.api import autoscaling_v1, autoscaling_v2, core_v1
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.indexer import by_namespace
from kube.informer import Change
from kube.quantity import parse
from kube.selectors import SelectorError

log = logging.getLogger(__name__)
Autoscaler = autoscaling_v2.HorizontalPodAutoscaler


class _Failed(Exception):
    """No number could be computed; the autoscaler stays as it is."""


class AutoscalingController:
    """Follows autoscalers and pods."""

    def __init__(self, context: Context, settings: AutoscalingSettings = DEFAULTS) -> None:
        self._client, self._clock, self._settings = context.client, context.clock, settings
        self._recorder = context.recorder("horizontal-pod-autoscaler")
        self._autoscalers = context.informers.of(Autoscaler)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index("namespace", by_namespace)
        self._targets = Targets(context.client, context.clock)
        self._calculator = Calculator(MetricsClient(context.client, context.clock), self._targets)
        self._histories: dict[str, shaping.History] = {}
        self._selectors = ScaleSelectors()
        self.controller = Controller("horizontalpodautoscaler", self.reconcile, workers=15, each=5, clock=context.clock)
        self._autoscalers.subscribe(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _changed(self, change: Change[Autoscaler]) -> None:
        if change.type == "DELETED":
            self._forget(change.key)
        elif change.old is None or change.old.spec != change.new.spec:
            self.controller.enqueue(change.key)

    def _forget(self, key: str) -> None:
        self._histories.pop(key, None)
        self._selectors.drop(key)

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Measure and scale once; come back after the sync period, whatever happened."""
        autoscaler = self._autoscalers.get(key)
        if autoscaler is None:
            return None
        outlook = Outlook(autoscaler, self._clock.now())
        try:
            await self._scale(key, autoscaler, outlook)
        except (StatusError, UnknownKind, _Failed) as error:
            log.info("autoscaler %s: %s", key, error)
        finally:
            if self._autoscalers.get(key) is None:  # it was deleted meanwhile
                self._forget(key)
        status = outlook.status()
        if status != autoscaler.status:
            try:
                await self._client.update_status(msgspec.structs.replace(autoscaler, status=status))
            except StatusError as error:
                if not error.conflict and not error.not_found:
                    log.warning("autoscaler %s: %s", key, error)
        return self._settings.sync_period

    async def _scale(self, key: str, autoscaler: Autoscaler, outlook: Outlook) -> None:
        spec, namespace = autoscaler.spec, autoscaler.metadata.namespace or ""
        reference = spec.scale_target_ref or autoscaling_v2.CrossVersionObjectReference()
        try:
            resource = await self._targets.resource(reference)
            scale = await self._targets.scale(resource, namespace, reference.name)
        except (StatusError, UnknownKind) as error:
            self._recorder.event(autoscaler, "Warning", "FailedGetScale", str(error))
            outlook.set("AbleToScale", value=False, reason="FailedGetScale", message=f"{_UNABLE_TO_GET}: {error}")
            raise
        outlook.set("AbleToScale", value=True, reason="SucceededGetScale", message=_ABLE_TO_GET)
        current, least = scale.spec.replicas or 0, 1 if spec.min_replicas is None else spec.min_replicas
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = shaping.History(recommendations=[(self._clock.monotonic(), current)])
        outlook.current = current
        wanted, reason = current, ""
        if current == 0 and least != 0:
            outlook.desired = 0
            outlook.set("ScalingActive", value=False, reason="ScalingDisabled", message=_DISABLED)
            return
        if current > spec.max_replicas:
            wanted, reason = spec.max_replicas, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            wanted, reason = least, "Current number of replicas below Spec.MinReplicas"
        else:
            recommendation, metric = await self._recommendation(key, autoscaler, scale, outlook)
            if recommendation > current:
                reason = f"{metric} above target"
            elif recommendation < current:
                reason = "All metrics below target"
            wanted = self._shaped(history, autoscaler, current, recommendation, least, outlook)
            limits = f", which the limits and the behavior make {wanted}" if wanted != recommendation else ""
            text = f"computed {recommendation} replicas from {metric}{limits}; there are {current}"
            self._recorder.decisions.changed(autoscaler, "size", text)
        if wanted == current:
            outlook.desired = current
            return
        try:
            await self._targets.rescale(resource, namespace, scale, wanted)
        except StatusError as error:
            text = f"New size: {wanted}; reason: {reason}; error: {error}"
            self._recorder.event(autoscaler, "Warning", "FailedRescale", text)
            outlook.set("AbleToScale", value=False, reason="FailedUpdateScale", message=f"{_UNABLE_TO_UPDATE}: {error}")
            raise
        outlook.set("AbleToScale", value=True, reason="SucceededRescale", message=f"{_UPDATED} {wanted}")
        self._recorder.event(autoscaler, "Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {reason}")
        history.changed(spec.behavior, current, wanted, self._clock.monotonic())
        outlook.desired = wanted
        outlook.scaled = format_time(self._clock.now())

    def _shaped(
        self,
        history: shaping.History,
        autoscaler: Autoscaler,
        current: int,
        recommendation: int,
        least: int,
        outlook: Outlook,
    ) -> int:
        rules, now = autoscaler.spec.behavior, self._clock.monotonic()
        calm = shaping.stabilized(history, rules, current, recommendation, now, self._settings.downscale_stabilization)
        outlook.set("AbleToScale", value=True, reason=calm.reason, message=calm.message)
        most = autoscaler.spec.max_replicas
        final = shaping.limited(history, rules, current, calm.replicas, least, most, now)
        outlook.set("ScalingLimited", value=final.replicas != calm.replicas, reason=final.reason, message=final.message)
        return final.replicas

    # -- metrics ----------------------------------------------------------------------------------------------------
    async def _recommendation(
        self, key: str, autoscaler: Autoscaler, scale: autoscaling_v1.Scale, outlook: Outlook
    ) -> tuple[int, str]:
        """Return the largest recommendation of all metrics, and its metric; raises _Failed if there is no valid one."""
        outlook.metrics = []
        situation = await self._situation(key, autoscaler, scale, outlook)
        metrics = autoscaler.spec.metrics
        recommendation, name, failures = 0, "", []
        for metric in metrics:
            await asyncio.sleep(0)  # requests within the process suspend nothing
            try:
                outcome = await self._calculator.outcome(metric, situation)
            except MetricFailed as failure:
                self._recorder.event(autoscaler, "Warning", failure.reason, failure.detail)
                failures.append(failure)
                outlook.metrics.append(autoscaling_v2.MetricStatus(type=""))
                continue
            outlook.metrics.append(outcome.status)
            if recommendation == 0 or outcome.replicas > recommendation:
                recommendation, name = outcome.replicas, outcome.name
        if failures and (len(failures) >= len(metrics) or recommendation < situation.spec_replicas):
            first = failures[0]
            detail = f"the HPA was unable to compute the replica count: {first.detail}"
            outlook.set("ScalingActive", value=False, reason=first.reason, message=detail)
            text = f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is: {first}"
            self._recorder.event(autoscaler, "Warning", "FailedComputeMetricsReplicas", text)
            raise _Failed(text)
        found = f"the HPA was able to successfully calculate a replica count from {name}"
        outlook.set("ScalingActive", value=True, reason="ValidMetricFound", message=found)
        return recommendation, name

    async def _situation(
        self, key: str, autoscaler: Autoscaler, scale: autoscaling_v1.Scale, outlook: Outlook
    ) -> Situation:
        namespace, text = autoscaler.metadata.namespace or "", scale.status.selector or ""
        if not text:
            self._invalid(autoscaler, outlook, "SelectorRequired", "selector is required", _NO_SELECTOR)
        if why := problem_of_target(text):
            self._invalid(autoscaler, outlook, "InvalidSelector", why, why)
        try:
            selector = await self._selectors.of(key, namespace, text)
        except SelectorError as error:
            why = f"couldn't convert selector into a corresponding internal selector object: {error}"
            self._invalid(autoscaler, outlook, "InvalidSelector", why, why)
        counter, pods = StepCounter(), list[core_v1.Pod]()
        for pod in self._pods.by_index("namespace", namespace):
            if await selects(selector, pod.metadata.labels, counter):
                pods.append(pod)
        others = await self._autoscalers_of(namespace, pods, counter)
        if len(others) > 1:
            names = " ".join(sorted(others))
            why = f"pods by selector {shortened(text)} are controlled by multiple HPAs: [{names}]"
            self._invalid(autoscaler, outlook, "AmbiguousSelector", why, why)
        return Situation(
            namespace,
            scale.spec.replicas or 0,
            scale.status.replicas,
            text,
            pods,
            self._tolerances(autoscaler),
            self._settings.startup,
            self._clock.now(),
        )

    async def _autoscalers_of(self, namespace: str, pods: list[core_v1.Pod], counter: StepCounter) -> set[str]:
        """Return the autoscalers that measure any of these pods, at most two of them."""
        found: set[str] = set()
        for pod in pods:
            labels = pod.metadata.labels
            await counter.count()
            for other in self._selectors.candidates(namespace, labels):
                selector = self._selectors.get(other)
                if selector is not None and await selects(selector, labels, counter):
                    found.add(other)
                if len(found) > 1:
                    return found
        return found

    def _invalid(self, autoscaler: Autoscaler, outlook: Outlook, reason: str, message: str, condition: str) -> NoReturn:
        """Report that the pods to measure cannot be determined; raises _Failed."""
        self._recorder.event(autoscaler, "Warning", reason, message)
        shown = "InvalidSelector" if reason == "SelectorRequired" else reason
        outlook.set("ScalingActive", value=False, reason=shown, message=condition)
        self._recorder.event(autoscaler, "Warning", "FailedComputeMetricsReplicas", message)
        raise _Failed(message)

    def _tolerances(self, autoscaler: Autoscaler) -> Tolerances:
        rules = autoscaler.spec.behavior or autoscaling_v2.HorizontalPodAutoscalerBehavior()

        def of(direction: autoscaling_v2.HPAScalingRules | None) -> float:
            given = direction.tolerance if direction is not None else None
            return self._settings.tolerance if given is None else float(parse(given))

        return Tolerances(of(rules.scale_down), of(rules.scale_up))


_UNABLE_TO_GET = "the HPA controller was unable to get the target's current scale"
_ABLE_TO_GET = "the HPA controller was able to get the target's current scale"
_UNABLE_TO_UPDATE = "the HPA controller was unable to update the target scale"
_UPDATED = "the HPA controller was able to update the target scale to"
_DISABLED = "scaling is disabled since the replica count of the target is zero"
_NO_SELECTOR = "the HPA target's scale is missing a selector"
