"""Subresources of pods that are actions: binding to a node, eviction."""

from __future__ import annotations

from control.decoding.decode import Decoder, directive
from control.http.exchange import Answer, Request, typed_response
from control.registry import compare_and_swap, deletion, deletion_plan, metadata, updating
from control.registry.context import SERVER, Context
from control.registry.metadata import precondition
from control.registry.strategy import Strategy
from control.server import journaling
from control.server.deleting import success
from control.server.subresources import created
from control.server.subresources.budgets import charge, unsettled
from control.server.verbs import Verbs
from control.storage import codec
from kube import disruption_target, errors
from kube.api import core_v1, policy_v1
from kube.clock import format_time
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource

_BINDING = Decoder(core_v1.Binding, "v1", "Binding")
_EVICTION = Decoder(policy_v1.Eviction, "policy/v1", "Eviction")
EVICTION_ATTEMPTS = 20
"""Number of states of a pending pod that are checked, as in upstream; if it changes once more, the response is 409."""


async def body_of(server: Verbs, request: Request, decoder: Decoder) -> Object:
    """Return a subresource's body, decoded as its own kind."""
    body = await request.document(server.max_body)
    validation = directive(request.option("fieldValidation"))
    obj = await server.decoded_as(decoder, request, body, validation)
    metadata.match_request(obj.get("metadata") or {}, request.info.namespace)
    return obj


async def bind(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Assign a pod to a node (pkg/registry/core/pod/storage: BindingREST); 409 if it has one already."""
    context = server.context(request, "CreateOptions")
    binding = await body_of(server, request, _BINDING)
    return await assign(server, request, context, request.info.name, binding, resource, resource)


async def assign(
    server: Verbs,
    request: Request,
    context: Context,
    name: str,
    binding: Object,
    asked: Resource,
    pods: Resource,
) -> Answer:
    """Write a Binding's node into its pod, in the request's namespace; raises 400, 409, 422.

    `asked` is the resource on the path: pods, or the legacy resource bindings.
    """
    namespace = request.info.namespace
    attributes = await created.admit(server, request, asked, name, binding, context)
    target, meta = binding.get("target") or {}, binding.get("metadata") or {}
    if meta.get("name") not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Binding object")
    problems = []
    if target.get("kind") not in (None, "", "Node"):
        problems.append(errors.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        problems.append(errors.required("target.name"))
    if problems:
        raise errors.invalid("", "Binding", name, problems)
    await created.validate(server, attributes)
    now = format_time(server.registry.clock.now())

    async def change(pod: Object | None) -> Object:
        assert pod is not None
        precondition(pods, pod["metadata"], {part: value for part, value in meta.items() if value})
        _check_assignable(pod, name)
        pod["spec"]["nodeName"] = target["name"]
        _add_metadata(server.registry.strategy(pods), pod, meta, name)
        pod.get("status", {}).pop("nominatedNodeName", None)
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        condition: Object = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        if pod["metadata"].get("generation"):
            condition["observedGeneration"] = pod["metadata"]["generation"]
        conditions[:] = [c for c in conditions if c.get("type") != "PodScheduled"]
        conditions.append(condition)
        return pod

    await compare_and_swap.change_stored(server.registry, context, pods, namespace, name, change)
    return typed_response(request, success({}) | {"code": 201}, "meta_v1", "Status", 201)


def _check_assignable(pod: Object, name: str) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    why = ""
    if meta.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise errors.conflict("", "pods/binding", name, why)


def _add_metadata(strategy: Strategy, pod: Object, binding: Object, name: str) -> None:
    """Add a Binding's labels and annotations to its pod; raises 422 if they are wrong, which upstream does not check."""
    old = pod["metadata"]
    added = {
        part: {**(old.get(part) or {}), **binding[part]} for part in ("labels", "annotations") if binding.get(part)
    }
    if not added:
        return
    pod["metadata"] = old | added
    problems = metadata.validate_update(strategy.resource, pod["metadata"], old, strategy.name_errors)
    if "annotations" in added:
        problems += strategy.validate_subresource("binding", pod, {**pod, "metadata": old})
    if problems:
        raise errors.invalid("", "Pod", name, problems)


async def evict(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Delete a pod if its disruption budget allows it; 429 if it does not (EvictionREST)."""
    context = server.context(request, "CreateOptions")
    eviction = created.wiped(await body_of(server, request, _EVICTION))
    namespace, name = request.info.namespace, request.info.name
    attributes = await created.admit(server, request, resource, name, eviction, context)
    given = (eviction.get("metadata") or {}).get("name")
    if given not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = deletion_plan.read_options(eviction.get("deleteOptions") or {}, {})
    options.dry_run = options.dry_run or context.dry_run
    await created.validate(server, attributes)
    context.admitted = True
    pod = await _check_and_delete(server, context, resource, namespace, name, options)
    if not options.dry_run:
        journaling.deleted(server.registry.journal, request, resource, context, pod, None)
    return typed_response(request, success({}) | {"code": 201}, "meta_v1", "Status", 201)


async def _check_and_delete(
    server: Verbs,
    context: Context,
    resource: Resource,
    namespace: str,
    name: str,
    options: deletion_plan.DeleteOptions,
) -> Object:
    """Delete a pod that may be evicted in its present state; check it again if its state has changed meanwhile.

    Return the pod.
    """
    given = options.preconditions or {}
    for attempt in range(1, EVICTION_ATTEMPTS + 1):
        pod = (await server.registry.get(resource, namespace, name)).obj
        meta, uncounted, options.preconditions = pod["metadata"], None, given
        if _needs_budget(pod):
            uncounted = await charge(server.registry, context.user.name, pod, dry_run=options.dry_run)
            # The budget was charged for this pod: another one of the same name must not be deleted.
            options.preconditions = {"uid": meta["uid"], **given}
        unready = uncounted is not None or _pending(pod)
        if unready:
            # It may become ready meanwhile, and then its budget counts it.
            precondition(resource, meta, given)
            options.preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        try:
            if not options.dry_run:
                await _mark_evicted(server, resource, namespace, name, options)
            await deletion.delete(server.registry, context, resource, namespace, name, options)
            return pod
        except StatusError as error:
            if not (unready and error.conflict) or given.get("resourceVersion") is not None:
                raise
            if uncounted is not None:
                raise unsettled(uncounted) from error
            if attempt == EVICTION_ATTEMPTS:
                raise
    raise AssertionError


async def _mark_evicted(
    server: Verbs, resource: Resource, namespace: str, name: str, options: deletion_plan.DeleteOptions
) -> None:
    """Set the DisruptionTarget condition of a pod, which pod failure policies of Jobs read."""

    async def change(pod: Object | None) -> Object:
        assert pod is not None
        precondition(resource, pod["metadata"], options.preconditions)
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        known: Object = next((c for c in conditions if c.get("type") == disruption_target.TYPE), {})
        now = format_time(server.registry.clock.now())
        since = known.get("lastTransitionTime", now) if known.get("status") == "True" else now
        generation = pod["metadata"].get("generation")
        condition = disruption_target.condition("EvictionByEvictionAPI", "Eviction API: evicting", since, generation)
        conditions[:] = [c for c in conditions if c.get("type") != disruption_target.TYPE]
        conditions.append({"lastProbeTime": None, **condition})
        return pod

    context = Context(SERVER, admitted=True)
    written = await updating.update(server.registry, context, resource, namespace, name, change, subresource="status")
    if (options.preconditions or {}).get("resourceVersion"):
        version = codec.decode(written.data)["metadata"]["resourceVersion"]
        options.preconditions = {**(options.preconditions or {}), "resourceVersion": version}


def _needs_budget(pod: Object) -> bool:
    """Return whether an eviction may disrupt anything: not if the pod has terminated, is pending, or is being deleted."""
    return not (_ended(pod) or _pending(pod))


def _pending(pod: Object) -> bool:
    return not _ended(pod) and (pod.get("status") or {}).get("phase") == "Pending"


def _ended(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))
