"""The controller manager: every controller in one process, on shared informers.

It talks to the API server through clients alone, so it runs over HTTPS as well as in the server's own process. Each controller
may act as a service account of its own (identities.py). When the server goes away informers reconnect and reconcilers back
off. A controller whose kind nobody uses waits for the first object (on_demand.py). It begins once the kinds that it requested
are listed: one that cannot be listed (a webhook is dead, a stored object cannot be decrypted) blocks its own controllers alone.
A controller that fails unforeseen is recreated after a pause; the others continue.
"""

from __future__ import annotations

import asyncio
import functools

from control.controllers import makers
from control.controllers.account_tokens import AccountTokenController
from control.controllers.bootstrap_signer import BootstrapSigner
from control.controllers.context import Context
from control.controllers.default_service_accounts import ServiceAccountController
from control.controllers.endpoints import (
    EndpointsController,
    EndpointSliceController,
    EndpointSliceMirroringController,
)
from control.controllers.garbage import GarbageCollector
from control.controllers.identities import ACCOUNTS, Clients
from control.controllers.legacy_tokens import LegacyTokenCleaner
from control.controllers.makers import Make, Runnable
from control.controllers.manager_config import ControllerConfig
from control.controllers.namespace import NamespaceController
from control.controllers.node_ipam import NodeIPAMController
from control.controllers.nodes import NodeLifecycleController, TaintEvictionController
from control.controllers.on_demand import wait_for_work
from control.controllers.pod_gc import PodGC
from control.controllers.role_aggregation import RoleAggregationController
from control.controllers.root_ca import RootCAPublisher
from control.controllers.service_cidrs import ServiceCIDRController
from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.token_cleaner import TokenCleaner
from kube import cancellation
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import temporary_subscriptions
from kube.journal import Journal
from kube.loops import Loops
from kube.port_ranges import PortRanges, reserved_ports
from kube.shared_informers import SharedInformers, wait_until_listed

__all__ = ["CONTROLLERS", "ControllerConfig", "Runnable", "run"]

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
    "replicaset": makers.named("replicaset:ReplicaSetController"),
    "replicationcontroller": makers.replication_controllers,
    "deployment": makers.named("deployment:DeploymentController"),
    "daemonset": makers.named("daemonset:DaemonSetController"),
    "statefulset": makers.named("statefulset:StatefulSetController"),
    "job": makers.named("job:JobController"),
    "endpointslice": lambda context, config: EndpointSliceController(context),
    "endpointslice-mirroring": lambda context, config: EndpointSliceMirroringController(context),
    "endpoints": lambda context, config: EndpointsController(context),
    "service-lb": lambda context, config: ServiceLoadBalancerController(
        context,
        enabled=config.service_load_balancer,
        reserved=reserved_ports(config.api_port),
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
    "certificatesigningrequest-approving": makers.certificate_approver,
    "certificatesigningrequest-signing": makers.certificate_signer,
    "certificatesigningrequest-cleaner": makers.named("certificates:CertificateCleaner"),
    "bootstrap-signer": lambda context, config: BootstrapSigner(context),
    "token-cleaner": lambda context, config: TokenCleaner(context),
    "clusterrole-aggregation": lambda context, config: RoleAggregationController(context),
    "cronjob": makers.named("cronjob:CronJobController"),
    "ttl-after-finished": makers.named("ttl_after_finished:TTLAfterFinishedController"),
    "horizontalpodautoscaler": makers.autoscalers,
    "disruption": makers.named("disruption:DisruptionController"),
    "persistentvolume-binder": makers.named("persistent_volumes:PersistentVolumeController"),
    "persistentvolume-attach-detach": makers.named("attach_detach:AttachDetachController"),
    "persistentvolume-expander": makers.named("volume_expansion:VolumeExpansionController"),
    "local-path-provisioner": makers.local_path,
    "gateway": makers.gateways,
    "ephemeral-volume": makers.named("ephemeral_volumes:EphemeralVolumeController"),
    "service-cidr": lambda context, config: ServiceCIDRController(context),
    "persistentvolumeclaim-protection": makers.named("storage_protection:ClaimProtectionController"),
    "persistentvolume-protection": makers.named("storage_protection:VolumeProtectionController"),
    "volumeattributesclass-protection": makers.named("storage_protection:AttributesClassProtectionController"),
    "resourceclaim": makers.named("resource_claims:ResourceClaimController"),
    "device-taint-eviction": makers.named("resource_claims:DeviceTaintEvictionController"),
    "resourcequota": makers.named("resource_quota:ResourceQuotaController"),
    "addons": makers.addons,
}
"""By upstream's names; None if the configuration leaves a controller out."""


async def run(
    client: Client,
    config: ControllerConfig,
    clock: Clock = SYSTEM,
    informers: SharedInformers | None = None,
    clients: Clients | None = None,
    journal: Journal | None = None,
) -> None:
    """Run all controllers until cancelled, on informers of their own or on those of the caller.

    Where `clients` are given each controller writes as its service account, else all of them through `client`.
    """
    context, loops = Context(client, clock, informers, journal), Loops(clock)
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
    """Make a controller when it has work, and run it once what it requested is listed; what it subscribed to ends with it."""
    await wait_for_work(name, context)
    with temporary_subscriptions():
        with context.informers.requested() as needed:
            controller = make(context, config)
        if controller is not None:
            await wait_until_listed(f"{name} controller", needed, context.clock)
            await controller.run()
