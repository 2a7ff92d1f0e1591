"""The controller manager: every controller in one process, on shared informers.

It talks to the API server through clients alone, so it runs over HTTPS as well as in the server's own process. Each controller
may act as a service account of its own (identities.py). When the server goes away informers reconnect and reconcilers back
off. A controller begins once the kinds that it requested are listed: one that cannot be listed (a webhook is dead, a stored
object cannot be decrypted) blocks its own controllers alone. A controller that fails unforeseen is recreated after a pause;
the others continue.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from control.controllers.account_tokens import AccountTokenController
from control.controllers.addons import AddonController, AddonSettings
from control.controllers.attach_detach import AttachDetachController
from control.controllers.autoscaling import AutoscalingController, AutoscalingSettings
from control.controllers.bootstrap_signer import BootstrapSigner
from control.controllers.certificates import CertificateApprover, CertificateCleaner, CertificateSigner
from control.controllers.context import Context
from control.controllers.cronjob import CronJobController
from control.controllers.daemonset import DaemonSetController
from control.controllers.default_service_accounts import ServiceAccountController
from control.controllers.deployment import DeploymentController
from control.controllers.disruption import DisruptionController
from control.controllers.endpoints import (
    EndpointsController,
    EndpointSliceController,
    EndpointSliceMirroringController,
)
from control.controllers.ephemeral_volumes import EphemeralVolumeController
from control.controllers.garbage import GarbageCollector
from control.controllers.gateway import GatewayCleanup, GatewayController
from control.controllers.identities import ACCOUNTS, Clients
from control.controllers.job import JobController
from control.controllers.legacy_tokens import YEAR, LegacyTokenCleaner
from control.controllers.local_path import LocalPathProvisioner
from control.controllers.namespace import NamespaceController
from control.controllers.node_ipam import NodeIPAMController
from control.controllers.nodes import NodeLifecycleController, TaintEvictionController
from control.controllers.nodes.zones import LifecycleSettings
from control.controllers.persistent_volumes import PersistentVolumeController
from control.controllers.pod_gc import PodGC
from control.controllers.replicaset import ReplicaSetController
from control.controllers.resource_claims import DeviceTaintEvictionController, ResourceClaimController
from control.controllers.resource_quota import ResourceQuotaController
from control.controllers.role_aggregation import RoleAggregationController
from control.controllers.root_ca import RootCAPublisher
from control.controllers.service_cidrs import ServiceCIDRController
from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.ports import NODES_OWN
from control.controllers.statefulset import StatefulSetController
from control.controllers.storage_protection import (
    AttributesClassProtectionController,
    ClaimProtectionController,
    VolumeProtectionController,
)
from control.controllers.token_cleaner import TokenCleaner
from control.controllers.ttl_after_finished import TTLAfterFinishedController
from control.controllers.volume_expansion import VolumeExpansionController
from control.interfaces.local_nodes import LocalNodes
from kube import cancellation
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import temporary_subscriptions
from kube.loops import Loops
from kube.port_ranges import LOAD_BALANCERS, PortRanges
from kube.shared_informers import SharedInformers, wait_until_listed


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of the cluster for controllers. Empty CA material leaves out what needs it."""

    cluster_cidr: str = "10.244.0.0/16"
    node_mask: int = 24
    """Prefix length of the pod range that each node gets."""
    root_ca: str = ""
    """PEM of the CA that signed the API server's certificate, published in every namespace."""
    signing_cert: str = ""
    signing_key: str = ""
    """PEM of the CA that signs certificates of nodes and users."""
    server_names: frozenset[str] = frozenset()
    """Names and addresses in the API server's certificate, which no node is given one for."""
    cluster_domain: str = "cluster.local"
    """The domain of Services' names, of which no node is given a certificate for one."""
    service_account_key: str = ""
    """PEM of the key that signs service accounts' tokens."""
    service_load_balancer: bool = True
    """True if Services of type LoadBalancer get addresses of nodes; off where something else gives them some."""
    load_balancer_ports: str = LOAD_BALANCERS
    """The ports that such Services may have, as kube.port_ranges reads them."""
    api_port: int = 6443
    local_path: bool = False
    """True if claims can be folders on nodes (the storage class local-path)."""
    gateway: bool = False
    """True if the Gateway API and Ingresses are served."""
    addons: AddonSettings | None = None
    """The folder whose files are applied; None: there is none."""
    autoscaling: AutoscalingSettings = field(default_factory=AutoscalingSettings)
    lifecycle: LifecycleSettings = field(default_factory=LifecycleSettings)
    local_nodes: LocalNodes | None = None
    """Nodes that run in this process."""
    legacy_tokens: float = YEAR
    """Seconds without use after which a token that was made by itself is marked, and deleted after as many more."""
    controllers: tuple[str, ...] = ("*",)
    """Enabled controllers: `*` is all, a name one more, `-name` one less, as upstream's --controllers."""

    def runs(self, name: str) -> bool:
        return name in self.controllers or ("*" in self.controllers and f"-{name}" not in self.controllers)


class Runnable(Protocol):
    async def run(self) -> None: ...


Make = Callable[[Context, ControllerConfig], Runnable | None]

CONTROLLERS: dict[str, Make] = {
    "serviceaccount": lambda context, config: ServiceAccountController(context),
    "serviceaccount-token": lambda context, config: (
        AccountTokenController(context, config.service_account_key, config.root_ca)
        if config.service_account_key
        else None
    ),
    "legacy-serviceaccount-token-cleaner": lambda context, config: LegacyTokenCleaner(context, config.legacy_tokens),
    "root-ca-certificate-publisher": lambda context, config: (
        RootCAPublisher(context, config.root_ca) if config.root_ca else None
    ),
    "replicaset": lambda context, config: ReplicaSetController(context),
    "replicationcontroller": lambda context, config: ReplicaSetController(context, core_v1.ReplicationController),
    "deployment": lambda context, config: DeploymentController(context),
    "daemonset": lambda context, config: DaemonSetController(context),
    "statefulset": lambda context, config: StatefulSetController(context),
    "job": lambda context, config: JobController(context),
    "endpointslice": lambda context, config: EndpointSliceController(context),
    "endpointslice-mirroring": lambda context, config: EndpointSliceMirroringController(context),
    "endpoints": lambda context, config: EndpointsController(context),
    "service-lb": lambda context, config: ServiceLoadBalancerController(
        context,
        enabled=config.service_load_balancer,
        reserved={**NODES_OWN, ("TCP", config.api_port): "the API server"},
        allowed=PortRanges.parse(config.load_balancer_ports),
        pod_ranges=[cidr for cidr in config.cluster_cidr.split(",") if cidr],
    ),
    "namespace": lambda context, config: NamespaceController(context),
    "pod-garbage-collector": lambda context, config: PodGC(context),
    "node-ipam": lambda context, config: (
        NodeIPAMController(context, config.cluster_cidr, config.node_mask) if config.cluster_cidr else None
    ),
    "node-lifecycle": lambda context, config: NodeLifecycleController(context, config.lifecycle, config.local_nodes),
    "garbage-collector": lambda context, config: GarbageCollector(context),
    "taint-eviction": lambda context, config: TaintEvictionController(context),
    "certificatesigningrequest-approving": lambda context, config: CertificateApprover(
        context, config.server_names, config.cluster_domain
    ),
    "certificatesigningrequest-signing": lambda context, config: (
        CertificateSigner(context, config.signing_cert, config.signing_key) if config.signing_key else None
    ),
    "certificatesigningrequest-cleaner": lambda context, config: CertificateCleaner(context),
    "bootstrap-signer": lambda context, config: BootstrapSigner(context),
    "token-cleaner": lambda context, config: TokenCleaner(context),
    "clusterrole-aggregation": lambda context, config: RoleAggregationController(context),
    "cronjob": lambda context, config: CronJobController(context),
    "ttl-after-finished": lambda context, config: TTLAfterFinishedController(context),
    "horizontalpodautoscaler": lambda context, config: AutoscalingController(context, config.autoscaling),
    "disruption": lambda context, config: DisruptionController(context),
    "persistentvolume-binder": lambda context, config: PersistentVolumeController(context),
    "persistentvolume-attach-detach": lambda context, config: AttachDetachController(context),
    "persistentvolume-expander": lambda context, config: VolumeExpansionController(context),
    "local-path-provisioner": lambda context, config: LocalPathProvisioner(context) if config.local_path else None,
    "gateway": lambda context, config: GatewayController(context) if config.gateway else GatewayCleanup(context),
    "ephemeral-volume": lambda context, config: EphemeralVolumeController(context),
    "service-cidr": lambda context, config: ServiceCIDRController(context),
    "persistentvolumeclaim-protection": lambda context, config: ClaimProtectionController(context),
    "persistentvolume-protection": lambda context, config: VolumeProtectionController(context),
    "volumeattributesclass-protection": lambda context, config: AttributesClassProtectionController(context),
    "resourceclaim": lambda context, config: ResourceClaimController(context),
    "device-taint-eviction": lambda context, config: DeviceTaintEvictionController(context),
    "resourcequota": lambda context, config: ResourceQuotaController(context),
    "addons": lambda context, config: AddonController(context, config.addons) if config.addons is not None else None,
}
"""By upstream's names; None if the configuration leaves a controller out."""


async def run(
    client: Client,
    config: ControllerConfig,
    clock: Clock = SYSTEM,
    informers: SharedInformers | None = None,
    clients: Clients | None = None,
) -> None:
    """Run all controllers until cancelled, on informers of their own or on those of the caller.

    Where `clients` are given each controller writes as its service account, else all of them through `client`.
    """
    context, loops = Context(client, clock, informers), Loops(clock)
    contexts = dict.fromkeys(CONTROLLERS, context)
    if clients is not None:
        accounts = {account: context.acting_as(clients(account)) for account in sorted(set(ACCOUNTS.values()))}
        contexts |= {name: accounts[account] for name, account in ACCOUNTS.items()}
    async with asyncio.TaskGroup() as group:
        if informers is None:
            cancellation.start(group, context.informers.run, "informers")
        cancellation.start(group, context.recorders.run, "events")
        for name, make in CONTROLLERS.items():
            if config.runs(name):
                work = functools.partial(_run, name, make, contexts[name], config)
                group.create_task(loops.run(f"{name} controller", work), name=f"{name} controller")


async def _run(name: str, make: Make, context: Context, config: ControllerConfig) -> None:
    """Make a controller, and run it once what it requested is listed; what it subscribed to ends with it."""
    with temporary_subscriptions():
        with context.informers.requested() as needed:
            controller = make(context, config)
        if controller is not None:
            await wait_until_listed(f"{name} controller", needed, context.clock)
            await controller.run()
