"""Builds profiles: upstream's default plugins in their order with their weights, modified by the configuration.

A plugin takes part at every extension point that it has a method for. `multiPoint` switches it at all of them, a point's own
list at that one; what a point enables by name comes before what it has from multiPoint. Plugins from elsewhere are added to
the `extra` factories under their names and switched on like the built-in ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import MULTI, ConfigurationError, PluginSet, ProfileConfig
from control.scheduler.framework import ClusterUse, Profile
from control.scheduler.plugins.balanced_allocation import BalancedAllocation
from control.scheduler.plugins.image_locality import ImageLocality
from control.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from control.scheduler.plugins.node_affinity import NodeAffinity
from control.scheduler.plugins.node_name import NodeName
from control.scheduler.plugins.node_ports import NodePorts
from control.scheduler.plugins.node_resources_fit import NodeResourcesFit
from control.scheduler.plugins.node_unschedulable import NodeUnschedulable
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.plugins.scheduling_gates import SchedulingGates
from control.scheduler.plugins.taint_toleration import TaintToleration
from control.scheduler.selector_spread import KinOf
from kube.api import core_v1

Args = Mapping[str, Any]
DEFAULTS = (
    "SchedulingGates",
    "PrioritySort",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
)
_METHODS = {
    "preEnqueue": "pre_enqueue",
    "postFilter": "post_filter",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}
_WITHOUT_OBJECT = {"PrioritySort": "queueSort", "DefaultPreemption": "postFilter"}
"""Plugins that are part of the queue and of the preemption here, and can be named all the same."""


def _no_kin(pod: core_v1.Pod) -> None:
    return None


class PluginContext(msgspec.Struct, frozen=True):
    """Dependencies of plugins. `shared` are plugins that all profiles have in common, by name."""

    cluster: Cluster
    kin: KinOf = _no_kin
    shared: Mapping[str, Any] = msgspec.field(default_factory=dict)
    extra: Mapping[str, Callable[[Args], Any]] = msgspec.field(default_factory=dict)
    ignored_resources: frozenset[str] = frozenset()
    backed: Callable[[str], bool] = msgspec.field(default=lambda name: False)
    """Says whether devices stand for an extended resource."""


def build(config: ProfileConfig, given: PluginContext, percentage: int = 0) -> Profile:
    """Make a profile; raises ConfigurationError for plugins that do not exist or do not take their arguments."""
    factories: dict[str, Callable[[Args], Any]] = {
        "SchedulingGates": lambda args: SchedulingGates(),
        "NodeUnschedulable": lambda args: NodeUnschedulable(),
        "NodeName": lambda args: NodeName(),
        "TaintToleration": lambda args: TaintToleration(),
        "NodeAffinity": NodeAffinity,
        "NodePorts": lambda args: NodePorts(),
        "NodeResourcesFit": lambda args: NodeResourcesFit(args, given.ignored_resources, given.backed),
        "PodTopologySpread": lambda args: PodTopologySpread(given.kin, args),
        "InterPodAffinity": InterPodAffinity,
        "NodeResourcesBalancedAllocation": BalancedAllocation,
        "ImageLocality": lambda args: ImageLocality(given.cluster),
        **given.extra,
    }
    made: dict[str, Any] = {}

    def plugin(name: str) -> Any:
        if name not in made:
            if name in given.shared:
                made[name] = given.shared[name]
            elif name in factories:
                try:
                    made[name] = factories[name](config.args.get(name, {}))
                except (ConfigurationError, TypeError, ValueError, KeyError, AttributeError) as error:
                    raise ConfigurationError(f"pluginConfig[{name}]: {error}") from error
            else:
                made[name] = None
        return made[name]

    known = {*factories, *given.shared, *DEFAULTS}
    for point, changes in config.points.items():
        for name, _ in changes.enabled:
            if name not in known:
                raise ConfigurationError(f'plugins.{point}.enabled: plugin "{name}" does not exist')
    chosen = {point: _at(point, config, plugin) for point in ("filter", "score", *_METHODS)}
    if not chosen["bind"] and "DefaultBinder" in given.shared:
        raise ConfigurationError("plugins.bind: at least one bind plugin is needed")
    scores = [(plugin(name), weight or plugin(name).weight) for name, weight in chosen["score"]]
    weights = {id(one): weight for one, weight in scores}
    filtering = [plugin(name) for name, _ in chosen["filter"]]
    across = [one for one in filtering if hasattr(one, "pre_filter")]
    across += [one for one, _ in scores if hasattr(one, "pre_filter") and one not in across]
    methods: dict[str, tuple[Any, ...]] = {
        method: tuple(plugin(name) for name, _ in chosen[point] if plugin(name) is not None)
        for point, method in _METHODS.items()
    }
    return Profile(
        filters=tuple(one for one in filtering if not hasattr(one, "pre_filter")),
        scores=tuple((one, weight) for one, weight in scores if not hasattr(one, "pre_filter")),
        cluster=tuple(ClusterUse(one, one in filtering, weights.get(id(one), 0)) for one in across),
        name=config.name,
        percentage=percentage if config.percentage is None else config.percentage,
        candidates=_candidates(config.args.get("DefaultPreemption", {})),
        preempts=any(name == "DefaultPreemption" for name, _ in chosen["postFilter"]),
        **methods,
    )


def _candidates(args: Args) -> tuple[int, int]:
    """Read DefaultPreemptionArgs; raises ConfigurationError."""
    share, least = args.get("minCandidateNodesPercentage", 10), args.get("minCandidateNodesAbsolute", 100)
    where = "pluginConfig[DefaultPreemption]"
    if not isinstance(share, int) or not 0 <= share <= 100:
        raise ConfigurationError(f"{where}: minCandidateNodesPercentage: not in valid range [0, 100]")
    if not isinstance(least, int) or least < 0:
        raise ConfigurationError(f"{where}: minCandidateNodesAbsolute: not in valid range [0, inf)")
    if not share and not least:
        raise ConfigurationError(
            f"{where}: minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero"
        )
    return share, least


def _at(point: str, config: ProfileConfig, plugin: Callable[[str], Any]) -> list[tuple[str, int]]:
    """Return the plugins of one extension point with the weights that they are given there (0: their own)."""
    everywhere, here = config.points.get(MULTI, PluginSet()), config.points.get(point, PluginSet())
    weights = dict(everywhere.enabled)
    base: list[str] = []
    if "*" not in everywhere.disabled:
        base = [name for name in DEFAULTS if name not in everywhere.disabled]
    base += [name for name, _ in everywhere.enabled if name not in base]
    named = [name for name, _ in here.enabled]
    for name in named:
        if not _takes_part(name, point, plugin(name)):
            raise ConfigurationError(f'plugins.{point}.enabled: plugin "{name}" does not extend {point} plugin')
    found = list(here.enabled)
    if "*" not in here.disabled:
        for name in base:
            if name not in named and name not in here.disabled and _takes_part(name, point, plugin(name)):
                found.append((name, weights.get(name, 0)))
    return found


def _takes_part(name: str, point: str, plugin: Any) -> bool:
    if plugin is None:
        return _WITHOUT_OBJECT.get(name) == point
    if point in _METHODS:
        return hasattr(plugin, _METHODS[point])
    if point == "filter":
        return hasattr(plugin, "filter") or hasattr(plugin, "pre_filter")
    if point == "score":
        # A plugin over the whole cluster without a weight has no points to give.
        return hasattr(plugin, "score") or (hasattr(plugin, "pre_filter") and plugin.weight > 0)
    return False
