"""Creates controllers, whose modules are imported when an object (on_demand.py) or the configuration needs them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol

from control.controllers.context import Context
from control.controllers.manager_config import ControllerConfig
from kube.api import core_v1


class Runnable(Protocol):
    async def run(self) -> None: ...


Make = Callable[[Context, ControllerConfig], Runnable | None]
"""Returns a controller, None if the configuration leaves it out."""


def named(target: str) -> Make:
    """Return the maker of a controller "module:Class" that needs only its context; the first call imports the module."""

    def make(context: Context, config: ControllerConfig) -> Runnable:
        module, _, name = target.partition(":")
        controller: Runnable = getattr(importlib.import_module(f"control.controllers.{module}"), name)(context)
        return controller

    return make


def replication_controllers(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.replicaset import ReplicaSetController

    return ReplicaSetController(context, core_v1.ReplicationController)


def autoscalers(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.autoscaling.controller import AutoscalingController

    return AutoscalingController(context, config.autoscaling)


def certificate_approver(context: Context, config: ControllerConfig) -> Runnable:
    from control.controllers.certificates import CertificateApprover

    return CertificateApprover(context, config.server_names, config.cluster_domain)


def certificate_signer(context: Context, config: ControllerConfig) -> Runnable | None:
    from control.controllers.certificates import CertificateSigner

    return CertificateSigner(context, config.signing_cert, config.signing_key) if config.signing_key else None


def local_path(context: Context, config: ControllerConfig) -> Runnable | None:
    if not config.local_path:
        return None
    from control.controllers.local_path import LocalPathProvisioner

    return LocalPathProvisioner(context)


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
