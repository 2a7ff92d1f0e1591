"""The scheduling framework: extension points of plugins, and their results.

There are two kinds of plugins. A *node-local* plugin reads only the pod and one node (resources, taints, ports, images). Its
result is valid for all pods of one signature until the node changes, so it is cached, and a pod is filtered only against nodes
that changed since the last one. A *cluster* plugin (inter-pod affinity, topology spread) reads other nodes too: its PreFilter
reads incremental counts once for each pod, and Filter and Score look them up. The other extension points (PreEnqueue, Reserve,
Permit, PreBind, Bind, PostBind) are separate protocols; a plugin may implement several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1

if TYPE_CHECKING:
    from control.scheduler.cluster import Cluster

MAX_SCORE = 100


class Rejection(msgspec.Struct, frozen=True):
    """Rejection of a node by a filter. `unresolvable`: evicting pods from the node would not help."""

    plugin: str
    reasons: tuple[str, ...]
    unresolvable: bool = False
    temporary: bool = False
    """The result may differ soon: the pod is retried after its back-off."""


class FilterPlugin(Protocol):
    """Node-local Filter."""

    name: str

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None: ...


class ScorePlugin(Protocol):
    """Node-local Score, 0 to 100. If `normalized` is "up" (highest is best) or "down" (lowest is best), any range."""

    name: str
    weight: int
    normalized: str

    def applies(self, pod: PodInfo) -> bool:
        """PreScore: False if the plugin does not score this pod."""
        ...

    def score(self, pod: PodInfo, node: NodeInfo) -> int: ...


class PreFilterState(Protocol):
    """State of a cluster plugin for one pod; `filter` is not called if it has a true attribute `only_scores`."""

    def filter(self, node: NodeInfo) -> Rejection | None: ...

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Return normalized scores of the feasible nodes, or None if all are equal."""
        ...


class ClusterPlugin(Protocol):
    """PreFilter over the whole cluster; None: the plugin does not apply to this pod (Skip).

    `pre_filter` raises PreFilterRejected if no node is feasible.
    """

    name: str
    weight: int

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None: ...


class DryRunState(Protocol):
    """State of a cluster plugin's `dry_run(pod, cluster)`, which counts once for all checks of a preemption attempt.

    Pods are removed from one node at a time and added again before the next (upstream: AddPod, RemovePod).
    """

    def filter(self, node: NodeInfo) -> Rejection | None: ...

    def prepare(self, pod: PodInfo, node: NodeInfo) -> None:
        """Compute what `moved` needs for a pod of the node."""
        ...

    def moved(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod that was added to the node (1) or removed from it (-1)."""
        ...


# -- around the choice ------------------------------------------------------------------------------------------------
class BindingFailed(Exception):
    """A pod cannot be bound to its node; the message is the reason."""


class PluginError(Exception):
    """A plugin failed, so the scheduling cycle fails; the message is the reason."""


class PreEnqueuePlugin(Protocol):
    """Keeps pods out of the queue."""

    name: str

    def pre_enqueue(self, pod: core_v1.Pod) -> str:
        """Return the reason to keep a pod out of the queue; "" to admit it."""
        ...


PostFilterAction = Callable[[], Awaitable[None]]


class PostFilterPlugin(Protocol):
    """Makes an unschedulable pod schedulable by other means than preemption."""

    name: str

    def post_filter(self, pod: PodInfo, nodes: Iterable[NodeInfo]) -> tuple[str, PostFilterAction | None]:
        """Return the text for the pod's condition, and the action that may make the pod schedulable."""
        ...


class ReservePlugin(Protocol):
    """Reserves resources for a pod from node selection until binding."""

    name: str

    def reserve(self, pod: PodInfo, node: core_v1.Node) -> None:
        """Raise BindingFailed if the reservation fails."""
        ...

    def unreserve(self, pod: PodInfo) -> None:
        """Release the reservation, if there is one.

        A plugin that has written to the API by then also has an async `release(pod)`, which reverts that.
        """
        ...


class PermitPlugin(Protocol):
    """Delays or denies the binding of a pod."""

    name: str

    async def permit(self, pod: PodInfo, node: str) -> None:
        """Return when the pod may be bound; raise BindingFailed if it may not."""
        ...


class PreBindPlugin(Protocol):
    """Does the work that binding requires, such as provisioning volumes."""

    name: str

    def waits(self, pod: PodInfo) -> bool:
        """True if pre_bind will have to wait."""
        ...

    async def pre_bind(self, pod: PodInfo, node: str) -> None:
        """Raise BindingFailed or StatusError on failure.

        A plugin may have a method `abandon(pod)`: it is called if the pod is deleted while the plugin waits.
        """
        ...


class BindPlugin(Protocol):
    """Binds pods."""

    name: str

    async def bind(self, pod: PodInfo, node: str) -> bool:
        """Bind a pod, or return False to leave it to the next plugin."""
        ...


class PostBindPlugin(Protocol):
    """Called with pods that were bound."""

    name: str

    def post_bind(self, pod: PodInfo, node: str) -> None: ...


class ClusterUse(msgspec.Struct, frozen=True):
    """Use of a cluster plugin in a profile: whether it filters, and its weight in scoring (0: none)."""

    plugin: ClusterPlugin
    filters: bool
    weight: int


class Profile(msgspec.Struct, frozen=True):
    """The plugins of one scheduler name, in order. Scores have their weights."""

    filters: tuple[FilterPlugin, ...]
    scores: tuple[tuple[ScorePlugin, int], ...]
    cluster: tuple[ClusterUse, ...]
    name: str = "default-scheduler"
    percentage: int = 0
    preempts: bool = True
    candidates: tuple[int, int] = (10, 100)
    """Percentage of the nodes, and minimum number of nodes, on which preemption searches victims."""
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    post_filter: tuple[PostFilterPlugin, ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    bind: tuple[BindPlugin, ...] = ()
    post_bind: tuple[PostBindPlugin, ...] = ()


class Diagnosis(msgspec.Struct):
    """Reasons why no node is feasible: rejections by node, and the message if PreFilter rejected the pod."""

    nodes: int
    rejections: dict[str, Rejection] = msgspec.field(default_factory=dict)
    pre_filter: str = ""

    @property
    def plugins(self) -> frozenset[str]:
        return frozenset(rejection.plugin for rejection in self.rejections.values())


class PreFilterRejected(Exception):
    """A cluster plugin rejects a pod on all nodes."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(reason)
        self.rejection = Rejection(plugin, (reason,), unresolvable=True)


class Unschedulable(Exception):
    """No node is feasible."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(fit_message(diagnosis))
        self.diagnosis = diagnosis


def histogram(reasons: Sequence[str]) -> str:
    """Return "1 Insufficient cpu, 2 node(s) were unschedulable": counted, sorted as text."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


def fit_message(diagnosis: Diagnosis) -> str:
    """Return upstream's FitError text, without what PostFilter adds."""
    if not diagnosis.nodes:
        return "no nodes available to schedule pods"
    text = f"0/{diagnosis.nodes} nodes are available:"
    if diagnosis.pre_filter:
        return f"{text} {diagnosis.pre_filter}."
    reasons = [reason for rejection in diagnosis.rejections.values() for reason in rejection.reasons]
    return f"{text} {histogram(reasons)}." if reasons else text


def normalize(scores: Sequence[int], direction: str) -> list[int]:
    """Scale scores so that the largest is 100 ("up") or 0 ("down"); all zero stays zero, or becomes 100."""
    top = max(scores, default=0)
    if direction == "down":
        return [MAX_SCORE - MAX_SCORE * s // top for s in scores] if top else [MAX_SCORE] * len(scores)
    return [MAX_SCORE * s // top for s in scores] if top else list(scores)
