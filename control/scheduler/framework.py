"""The plugin framework: extension points, and what plugins say.

Two kinds of plugins. A *node-local* one looks at the pod and one node only (resources, taints, ports, images); its
verdict holds for all pods of one signature until the node changes, so it is cached and a pod costs work only on the
nodes that changed since the last one. A *cluster* plugin (inter-pod affinity, topology spread) looks at other nodes too;
its PreFilter reads incremental counts once a pod, and Filter and Score are then look-ups. What comes before and after the
choice (PreEnqueue, Reserve, Permit, PreBind, Bind, PostBind) are protocols of their own; one plugin may be several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1

if TYPE_CHECKING:
    from control.scheduler.cluster import Cluster

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node does not fit. `unresolvable`: evicting pods from it would not help."""

    plugin: str
    reasons: tuple[str, ...]
    unresolvable: bool = False
    passing: bool = False
    """The same question may have another answer a little later: the pod is retried after its back-off."""


class FilterPlugin(Protocol):
    """Node-local Filter."""

    name: str

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None: ...


class ScorePlugin(Protocol):
    """Node-local Score, 0 to 100; or any size, where `normalized` is "up" (most is best) or "down" (least is best)."""

    name: str
    weight: int
    normalized: str

    def applies(self, pod: PodInfo) -> bool:
        """PreScore: False where the pod gives nothing to score."""
        ...

    def score(self, pod: PodInfo, node: NodeInfo) -> int: ...


class Constraint(Protocol):
    """Result of a cluster plugin for one pod; one that `only_scores` need not be asked to filter (default: ask)."""

    def filter(self, node: NodeInfo) -> Rejection | None: ...

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Return normalized scores of the feasible nodes, or None where all are alike."""
        ...


class ClusterPlugin(Protocol):
    """PreFilter over the whole cluster; None: the plugin has nothing to say about this pod.

    `pre_filter` raises PreFilterRejected where no node can do.
    """

    name: str
    weight: int

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> Constraint | None: ...


# -- around the choice ------------------------------------------------------------------------------------------------
class BindingFailed(Exception):
    """A pod cannot go where it was placed; the message says why."""


class PluginError(Exception):
    """A plugin cannot say whether a pod fits, so the try fails; the message says why."""


class Unfinished(Exception):
    """A plugin has more to work out for a pod than the event loop may be blocked for: it decides nothing yet.

    `go_on` works it out beside others; then the pod is decided anew.
    """

    def __init__(self, go_on: Callable[[], Awaitable[None]]) -> None:
        super().__init__("more is to be worked out")
        self.go_on = go_on


class PreEnqueuePlugin(Protocol):
    """Keeps pods out of the queue."""

    name: str

    def pre_enqueue(self, pod: core_v1.Pod) -> str:
        """Return why a pod is not to be tried yet; "" where it is."""
        ...


Act = Callable[[], Awaitable[None]]


class PostFilterPlugin(Protocol):
    """Does something about a pod that fits nowhere, short of preemption."""

    name: str

    def post_filter(self, pod: PodInfo, nodes: Iterable[NodeInfo]) -> tuple[str, Act | None]:
        """Return what is to be said, and what is to be done so that the pod may fit later."""
        ...


class ReservePlugin(Protocol):
    """Keeps something for a placed pod until it is bound."""

    name: str

    def reserve(self, pod: PodInfo, node: core_v1.Node) -> None:
        """Raise BindingFailed where it cannot be kept."""
        ...

    def unreserve(self, pod: PodInfo) -> None:
        """Give back what was kept; also called where nothing was.

        A plugin that has written something by then has an async `release(pod)` as well, which takes it back.
        """
        ...


class PermitPlugin(Protocol):
    """Lets a placed pod go on, later or never."""

    name: str

    async def permit(self, pod: PodInfo, node: str) -> None:
        """Return when the pod may be bound; raise BindingFailed where it may not."""
        ...


class PreBindPlugin(Protocol):
    """Does what must be done before a pod is bound."""

    name: str

    def waits(self, pod: PodInfo) -> bool:
        """True where pre_bind will have something to wait for."""
        ...

    async def pre_bind(self, pod: PodInfo, node: str) -> None:
        """Raise BindingFailed or StatusError where it cannot be done."""
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


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """Use of a cluster plugin in a profile: whether it filters, and its weight in scoring (0: none)."""

    plugin: ClusterPlugin
    filters: bool
    weight: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler name, in order. Scores have their weights."""

    filters: tuple[FilterPlugin, ...]
    scores: tuple[tuple[ScorePlugin, int], ...]
    cluster: tuple[ClusterUse, ...]
    name: str = "default-scheduler"
    percentage: int = 0
    preempts: bool = True
    candidates: tuple[int, int] = (10, 100)
    """Preemption looks for victims on so many percent of the nodes, and at least on so many."""
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    post_filter: tuple[PostFilterPlugin, ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    bind: tuple[BindPlugin, ...] = ()
    post_bind: tuple[PostBindPlugin, ...] = ()


@dataclass(slots=True)
class Diagnosis:
    """Why no node fits: rejections by node, and a message where PreFilter already ruled the pod out."""

    nodes: int
    rejections: dict[str, Rejection] = field(default_factory=dict)
    pre_filter: str = ""

    @property
    def plugins(self) -> frozenset[str]:
        return frozenset(rejection.plugin for rejection in self.rejections.values())


class PreFilterRejected(Exception):
    """A cluster plugin rules a pod out, whatever the node."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(reason)
        self.rejection = Rejection(plugin, (reason,), unresolvable=True)


class Unschedulable(Exception):
    """No node fits."""

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
