"""The root span of a new pod's trace, which scheduler and kubelet continue (kube/tracing/tracer.py)."""

from __future__ import annotations

from kube.tracing import spans


def created(namespace: str, name: str, uid: str, revision: int) -> None:
    """Record the creation of a pod, from the beginning of the current request, and link both; nothing without tracing."""
    step = spans.current()
    if step is None:
        return
    request = step.entry
    root = request.tracer.pod_root(uid)
    if root is None:
        return
    request.link(root)
    attributes = spans.of_pod(namespace, name, uid) | {"k8s.pod.resource_version": str(revision)}
    request.tracer.create_pod(root, attributes, request.context, request.start)
