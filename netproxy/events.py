"""Records this role's events, in upstream's words where upstream records them."""

from __future__ import annotations

from kube.api import core_v1, networking_v1
from kube.events import NORMAL, WARNING, EventRecorder
from netproxy.balancer_ports import PortInUse


class Events:
    """Records what happened on a node."""

    def __init__(self, recorder: EventRecorder, node_name: str) -> None:
        self._recorder, self._name = recorder, node_name
        # As upstream, the node's name stands for its uid: `kubectl describe` asks so.
        self._node = core_v1.ObjectReference(kind="Node", name=node_name, uid=node_name)

    def starting(self) -> None:
        self._recorder.event(self._node, NORMAL, "Starting", "")

    def service_rules_repaired(self) -> None:
        self._recorder.event(
            self._node, WARNING, "RulesRepaired", "Repaired Service rules that other programs had changed"
        )

    def policies_repaired(self) -> None:
        self._recorder.event(
            self._node, WARNING, "RulesRepaired", "Repaired network policies that other programs had changed"
        )

    def load_balancer_port_in_use(self, service: core_v1.Service, port: PortInUse) -> None:
        message = f"{port} on node {self._name}: the Service is not served there"
        self._recorder.event(service, WARNING, "LoadBalancerPortInUse", message)

    def gateway_ports_in_use(self, text: str) -> None:
        self._recorder.event(self._node, WARNING, "GatewayPortInUse", text)

    def gateway_sockets_not_copied(self, text: str) -> None:
        self._recorder.event(self._node, WARNING, "GatewayPortNotServed", text)

    def service_not_served(self, service: core_v1.Service, why: str) -> None:
        self._recorder.event(service, WARNING, "ServiceNotServed", f"Node {self._name} does not serve it: {why}")

    def policy_not_enforced(self, policy: networking_v1.NetworkPolicy, why: str) -> None:
        message = f"Pods on node {self._name} that it selects are isolated: {why}"[:1000]
        self._recorder.event(policy, WARNING, "PolicyNotEnforced", message)
