"""Rules for a cluster some time after the last fault: every controller's actual state is the desired one."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.oracles.objects import Object, Objects, is_over, is_ready, name, owner, selects


def unsettled(objects: Objects, nodes: int) -> Iterator[str]:
    """Return what is not as its specification says, in a cluster whose nodes are all in order and have room."""
    yield from _nodes(objects, nodes)
    yield from _deletions(objects)
    yield from _owners(objects)
    pods = _by_owner(objects)
    for deployment in objects.all("deployments"):
        yield from _deployment(deployment, objects)
    for kind in ("replicasets", "statefulsets"):
        for workload in objects.all(kind):
            yield from _replicas(workload, pods.get(workload["metadata"]["uid"], []))
    for daemon_set in objects.all("daemonsets"):
        yield from _daemon_set(daemon_set, pods.get(daemon_set["metadata"]["uid"], []), nodes)
    for job in objects.all("jobs"):
        yield from _job(job, pods.get(job["metadata"]["uid"], []))
    for service in objects.all("services"):
        yield from _service(service, objects)
    for budget in objects.all("poddisruptionbudgets"):
        yield from _budget(budget, objects)
    for quota in objects.all("resourcequotas"):
        yield from _quota(quota, objects)


def _nodes(objects: Objects, nodes: int) -> Iterator[str]:
    ready = [node for node in objects.all("nodes") if is_ready(node)]
    if len(ready) != nodes:
        yield f"{len(ready)} of {nodes} nodes are Ready"
    for node in ready:
        if node["spec"].get("taints"):
            yield f"{name(node)} has taints: {node['spec']['taints']}"


def _deletions(objects: Objects) -> Iterator[str]:
    namespaces = {each["metadata"]["name"] for each in objects.all("namespaces")}
    for resource, obj in objects.every():
        meta = obj.get("metadata") or {}
        if meta.get("deletionTimestamp"):
            yield f"{resource} {name(obj)} is still being deleted"
        if meta.get("namespace") and meta["namespace"] not in namespaces:
            yield f"{resource} {name(obj)} is in a namespace that does not exist"


def _owners(objects: Objects) -> Iterator[str]:
    uids = {(obj.get("metadata") or {}).get("uid") for _, obj in objects.every()}
    for resource, obj in objects.every():
        references = (obj.get("metadata") or {}).get("ownerReferences") or ()
        if references and not any(each["uid"] in uids for each in references):
            yield f"{resource} {name(obj)} has lost its owner {references[0]['kind']} {references[0]['name']}"


def _by_owner(objects: Objects) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for pod in objects.all("pods"):
        if (reference := owner(pod)) is not None and not is_over(pod):
            found.setdefault(reference["uid"], []).append(pod)
    return found


def _observed(obj: Object) -> Iterator[str]:
    if (obj.get("status") or {}).get("observedGeneration") != obj["metadata"]["generation"]:
        yield f"{name(obj)}: its newest generation was not observed"


def _deployment(deployment: Object, objects: Objects) -> Iterator[str]:
    yield from _observed(deployment)
    wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    for field in ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"):
        if status.get(field, 0) != wanted:
            yield f"{name(deployment)}: {field} is {status.get(field, 0)}, not {wanted}"
    uid = deployment["metadata"]["uid"]
    own = [each for each in objects.all("replicasets") if (owner(each) or {}).get("uid") == uid]
    sizes = sorted(each["spec"].get("replicas", 1) for each in own)
    if not own or sizes[-1] != wanted or any(sizes[:-1]):
        yield f"{name(deployment)}: its ReplicaSets want {sizes}, not {wanted}"


def _replicas(workload: Object, pods: list[Object]) -> Iterator[str]:
    yield from _observed(workload)
    wanted, status = workload["spec"].get("replicas", 1), workload.get("status") or {}
    if len(pods) != wanted or not all(map(is_ready, pods)):
        yield f"{name(workload)}: has {len(pods)} pods, {sum(map(is_ready, pods))} of them Ready, not {wanted}"
    for field in ("replicas", "readyReplicas", "availableReplicas"):
        if status.get(field, 0) != wanted:
            yield f"{name(workload)}: {field} is {status.get(field, 0)}, not {wanted}"
    if workload["kind"] == "StatefulSet":
        names = sorted(pod["metadata"]["name"] for pod in pods)
        if names != sorted(f"{workload['metadata']['name']}-{n}" for n in range(wanted)):
            yield f"{name(workload)}: its pods are {names}"
        revisions = {pod["metadata"]["labels"].get("controller-revision-hash") for pod in pods}
        if pods and revisions != {status.get("updateRevision")}:
            yield f"{name(workload)}: its pods have the revisions {revisions}, not {status.get('updateRevision')}"


def _daemon_set(daemon_set: Object, pods: list[Object], nodes: int) -> Iterator[str]:
    yield from _observed(daemon_set)
    status = daemon_set.get("status") or {}
    if (
        len({pod["spec"].get("nodeName") for pod in pods}) != nodes
        or len(pods) != nodes
        or not all(map(is_ready, pods))
    ):
        yield f"{name(daemon_set)}: has {len(pods)} pods, {sum(map(is_ready, pods))} of them Ready, not {nodes}"
    for field in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"):
        if status.get(field, 0) != nodes:
            yield f"{name(daemon_set)}: {field} is {status.get(field, 0)}, not {nodes}"


def _job(job: Object, pods: list[Object]) -> Iterator[str]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = [each["type"] for each in conditions if each["status"] == "True" and each["type"] in ("Complete", "Failed")]
    if len(ended) != 1:
        yield f"{name(job)}: has ended as {ended}"
    if pods:
        yield f"{name(job)}: {len(pods)} of its pods still run"
    if ended == ["Complete"] and job["status"].get("succeeded") != job["spec"]["completions"]:
        yield f"{name(job)}: is complete with {job['status'].get('succeeded')} of {job['spec']['completions']} pods"


def _service(service: Object, objects: Objects) -> Iterator[str]:
    selector, meta = service["spec"].get("selector"), service["metadata"]
    if not selector:
        return
    wanted = {
        pod["status"].get("podIP")
        for pod in objects.all("pods", meta["namespace"])
        if selects({"matchLabels": selector}, pod) and is_ready(pod) and not is_over(pod)
    }
    found = {
        address
        for piece in objects.all("endpointslices", meta["namespace"])
        if (piece["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == meta["name"]
        for endpoint in piece.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready")
        for address in endpoint["addresses"]
    }
    if found != wanted:
        yield f"{name(service)}: its endpoints are {sorted(found)}, not {sorted(map(str, wanted))}"


def _budget(budget: Object, objects: Objects) -> Iterator[str]:
    yield from _observed(budget)
    pods = [
        pod for pod in objects.all("pods", budget["metadata"]["namespace"]) if selects(budget["spec"]["selector"], pod)
    ]
    healthy, least = sum(is_ready(pod) and not is_over(pod) for pod in pods), budget["spec"]["minAvailable"]
    wanted = {"currentHealthy": healthy, "desiredHealthy": least, "disruptionsAllowed": max(0, healthy - least)}
    for field, number in wanted.items():
        if (found := (budget.get("status") or {}).get(field, 0)) != number:
            yield f"{name(budget)}: {field} is {found}, not {number}"


def _quota(quota: Object, objects: Objects) -> Iterator[str]:
    number = sum(not is_over(pod) for pod in objects.all("pods", quota["metadata"]["namespace"]))
    used = ((quota.get("status") or {}).get("used") or {}).get("pods")
    if used != str(number):
        yield f"{name(quota)}: used is {used}, not {number}"
