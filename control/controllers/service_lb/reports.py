"""Reports in events why Services of type LoadBalancer wait, once for each reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from control.controllers.service_lb.waiting import WaitingServices
from kube.api import core_v1
from kube.events import EventRecorder
from kube.object_names import key_of


class Reports:
    """Records events of Services, and in `waiting` that they wait."""

    def __init__(self, recorder: EventRecorder, waiting: WaitingServices) -> None:
        self._recorder, self._waiting = recorder, waiting

    def result(
        self, service: core_v1.Service, problem: str, addresses: Collection[str], withheld: Mapping[str, str]
    ) -> None:
        """Report why a Service lacks ports or has no address; `problem` is why it cannot have what it asks for."""
        if problem:
            self.failed(service, problem)
        elif addresses:
            self._waiting.served(key_of(service), partial=bool(withheld))
        elif withheld:
            self.failed(service, next(iter(withheld.values())))
        else:
            self._report(service, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")

    def failed(self, service: core_v1.Service, why: str) -> None:
        """Report why a Service cannot have what it asks for."""
        message = f"Error syncing load balancer: failed to ensure load balancer: {why}"
        self._report(service, "SyncLoadBalancerFailed", message)

    def _report(self, service: core_v1.Service, reason: str, message: str) -> None:
        if self._waiting.report(key_of(service), message):
            self._recorder.event(service, "Warning", reason, message)
