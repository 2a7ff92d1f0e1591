"""Builds the volume manager with its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from agent.assembly.base import Base
from agent.csi.attachments import Attachments
from agent.csi.csi_node import CSINodes
from agent.csi.drivers import CSIDrivers
from agent.csi.expansion import DriverExpansion
from agent.csi.layout import Layout
from agent.csi.limits import Limits
from agent.csi.publishing import Publisher
from agent.csi.volumes import CSIVolumes
from agent.node.state import NodeState
from agent.pods.references import ReferenceStore
from agent.tasks import Tasks
from agent.volumes.claims import ClaimReader
from agent.volumes.expansion import Expansion
from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.manager import VolumeManager
from agent.volumes.node_affinity import VolumeNodeAffinity
from agent.volumes.persistent import PersistentVolumes
from agent.volumes.tokens import TokenCache
from agent.volumes.trust_bundles import TrustBundles
from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class Volumes:
    """The volume manager, with its parts that other groups use."""

    manager: VolumeManager
    csi: CSIVolumes
    drivers: CSIDrivers
    nodes: CSINodes
    attachments: Attachments
    limits: Limits

    def start(self, tasks: Tasks) -> None:
        tasks.loop("CSINode", self.nodes.ensure)
        tasks.loop("volume limits", self.limits.run)


def build_volumes(
    base: Base,
    references: ReferenceStore,
    pods_changed: Callable[[Iterable[str]], None],
    runtime_handler: Callable[[str], str],
) -> Volumes:
    """Build the volume manager without starting anything.

    `pods_changed` is called with the UIDs of pods whose volumes are to be set up again; `runtime_handler` returns the handler
    of a RuntimeClass.
    """
    config, client, state, clock = base.config, base.client, base.state, base.clock
    tokens = TokenCache(client, clock=clock)
    nodes = CSINodes(client, config.node_name, clock=clock)
    drivers = CSIDrivers(nodes)
    limits = Limits(client, drivers, nodes, clock=clock)
    attachments = Attachments(client, config.node_name, request_report=state.request_report, clock=clock, limits=limits)
    layout = Layout(config.root_dir, config.pods_dir)
    expansion = Expansion(client, base.recorder, clock=clock)
    csi = CSIVolumes(
        client,
        drivers,
        attachments,
        layout,
        Publisher(client, config.node_name, layout, tokens),
        DriverExpansion(client, expansion),
        clock=clock,
        pods_changed=pods_changed,
    )
    limits.about.subscribe(csi.driver_changed)
    manager = VolumeManager(
        config.pods_dir,
        references,
        tokens,
        PersistentVolumes(
            config.pods_dir,
            ClaimReader(client),
            LocalPathVolumes(config.local_path_dir),
            VolumeNodeAffinity(client, config.node_name, lambda: state.labels),
            csi,
            expansion=expansion,
            clock=clock,
        ),
        TrustBundles(client, clock),
        host_ips=lambda: state.host_ips,
        allocatable=lambda: state.allocatable,
        recursive_read_only=partial(_recursive_read_only, state, runtime_handler),
    )
    return Volumes(manager, csi, drivers, nodes, attachments, limits)


def _recursive_read_only(state: NodeState, runtime_handler: Callable[[str], str], pod: core_v1.Pod) -> bool:
    """Return whether the runtime supports recursive read-only mounts for a pod."""
    name = pod.spec.runtime_class_name
    try:
        return state.recursive_read_only.get(runtime_handler(name) if name else "", False)
    except KeyError:
        return False
