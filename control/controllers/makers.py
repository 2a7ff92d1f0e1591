"""Makes controllers whose modules are imported when an object (on_demand.py) or the configuration needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from control.controllers.context import Context
from control.controllers.manager_config import ControllerConfig
from kube.api import core_v1


class Runnable(Protocol):
    async def run(self) -> None: ...


Make = Callable[[Context, ControllerConfig], Runnable | None]
"""Returns a controller, None if the configuration leaves it out."""


def replica_sets(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.replicaset import ReplicaSetController

    return ReplicaSetController(context)


def replication_controllers(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.replicaset import ReplicaSetController

    return ReplicaSetController(context, core_v1.ReplicationController)


def deployments(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.deployment import DeploymentController

    return DeploymentController(context)


def daemon_sets(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.daemonset import DaemonSetController

    return DaemonSetController(context)


def stateful_sets(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.statefulset import StatefulSetController

    return StatefulSetController(context)


def jobs(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.job import JobController

    return JobController(context)


def cron_jobs(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.cronjob import CronJobController

    return CronJobController(context)


def finished_jobs(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.ttl_after_finished import TTLAfterFinishedController

    return TTLAfterFinishedController(context)


def autoscalers(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.autoscaling.controller import AutoscalingController

    return AutoscalingController(context, config.autoscaling)


def disruption_budgets(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.disruption import DisruptionController

    return DisruptionController(context)


def certificate_approver(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.certificates import CertificateApprover

    return CertificateApprover(context, config.server_names, config.cluster_domain)


def certificate_signer(context: Context, config: ControllerConfig) -> Runnable | None:
    from control.controllers.certificates import CertificateSigner

    return CertificateSigner(context, config.signing_cert, config.signing_key) if config.signing_key else None


def certificate_cleaner(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.certificates import CertificateCleaner

    return CertificateCleaner(context)


def volume_binder(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.persistent_volumes import PersistentVolumeController

    return PersistentVolumeController(context)


def attach_detach(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.attach_detach import AttachDetachController

    return AttachDetachController(context)


def volume_expander(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.volume_expansion import VolumeExpansionController

    return VolumeExpansionController(context)


def local_path(context: Context, config: ControllerConfig) -> Runnable | None:
    if not config.local_path:
        return None
    from control.controllers.local_path import LocalPathProvisioner

    return LocalPathProvisioner(context)


def ephemeral_volumes(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.ephemeral_volumes import EphemeralVolumeController

    return EphemeralVolumeController(context)


def claim_protection(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.storage_protection import ClaimProtectionController

    return ClaimProtectionController(context)


def volume_protection(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.storage_protection import VolumeProtectionController

    return VolumeProtectionController(context)


def attributes_class_protection(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.storage_protection import AttributesClassProtectionController

    return AttributesClassProtectionController(context)


def resource_claims(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.resource_claims import ResourceClaimController

    return ResourceClaimController(context)


def device_taint_eviction(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.resource_claims import DeviceTaintEvictionController

    return DeviceTaintEvictionController(context)


def resource_quotas(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.resource_quota import ResourceQuotaController

    return ResourceQuotaController(context)


def addons(context: Context, config: ControllerConfig) -> Runnable | None:
    if config.addons is None:
        return None
    from control.controllers.addons.controller import AddonController

    return AddonController(context, config.addons)


def gateways(context: Context, config: ControllerConfig) -> Runnable:
    if config.gateway:
        from control.controllers.gateway.controller import GatewayController

        return GatewayController(context)
    from control.controllers.gateway.cleanup import GatewayCleanup

    return GatewayCleanup(context)
