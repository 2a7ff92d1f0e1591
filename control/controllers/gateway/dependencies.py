"""Record of what the controllers of Gateways and of Ingresses share: clients, caches, and the ports and copies they use."""

from __future__ import annotations

from dataclasses import dataclass

from control.controllers.gateway.certificates import Certificates
from control.controllers.gateway.generated import GeneratedObjects
from control.controllers.gateway.host_records import HostRecords
from control.controllers.gateway.listening_nodes import ListeningNodes
from control.controllers.gateway.port_users import PortUsers
from kube.client import Client
from kube.clock import Clock
from kube.events import EventRecorder
from kube.gateway.cluster import Cluster


@dataclass(frozen=True, slots=True)
class GatewayDependencies:
    """Objects that are built once for both."""

    client: Client
    clock: Clock
    recorder: EventRecorder
    cluster: Cluster
    hosts: HostRecords
    certificates: Certificates
    generated: GeneratedObjects
    listening: ListeningNodes
    users: PortUsers
