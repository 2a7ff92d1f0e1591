"""Computes how much swap a container may use (KEP-2400): none, or with LimitedSwap a share for its share of memory. Pure.

Only burstable pods that are not critical get swap, and of their containers those whose memory request is set and less than the
limit: guaranteed memory must not wait for a disk, and a container without a request has no share
(pkg/kubelet/kuberuntime/kuberuntime_container_linux.go).
"""

from __future__ import annotations

from agent.cgroups import qos
from kube.api import core_v1
from kube.quantity import value

NO_SWAP, LIMITED_SWAP = "NoSwap", "LimitedSwap"


def limit(
    pod: core_v1.Pod, container: core_v1.Container, behavior: str, memory: int, swap: int, *, static: bool
) -> int:
    """Return the bytes of swap for a container; `memory` and `swap` are the machine's, `static` is the pod's source."""
    if behavior != LIMITED_SWAP or not memory:
        return 0
    if qos.is_critical(pod, static=static) or qos.qos_class(pod) != qos.BURSTABLE:
        return 0
    request = value(qos.requests(container.resources).get("memory", 0))
    if not request or request == value(qos.limits(container.resources).get("memory", 0)):
        return 0
    return request * swap // memory
