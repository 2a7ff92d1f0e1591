"""ResourceClaims: created from templates for pods, and deallocated when no pod uses them.

A pod's claims are recorded in its status, where scheduler and kubelet find them. A claim stays reserved for a pod until
the pod has ended; with the last one the devices are given back, and a claim that was made for a pod goes. Pods that
somebody put on a node without the scheduler get their reservation here. Upstream: pkg/controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from control.controllers.context import Context
from control.controllers.ownership import controller_of
from control.controllers.resource_claims.generated_claims import POD_CLAIM, claim_from, is_done
from kube import errors
from kube.api import core_v1, resource_v1
from kube.client import STRATEGIC
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of
from kube.pod_claims import ClaimError, can_be_reserved, claim_name, is_owner, is_reserved_for, made_claims

FINALIZER = "resource.kubernetes.io/delete-protection"
_OF_POD, _USERS, _MADE_FROM = "made for pod", "claims of pods", "templates of pods' claims"
_POD, _CLAIM = "pod:", "claim:"


def _maker(claim: resource_v1.ResourceClaim) -> Iterable[str]:
    owner = controller_of(claim)
    return (f"{namespace_of(claim)}/{owner.uid}",) if owner is not None and owner.kind == "Pod" else ()


def _claims(pod: core_v1.Pod) -> list[str]:
    """Return the keys of the claims that a pod uses, as far as they are known."""
    found, made = [], made_claims(pod)
    for entry in pod.spec.resource_claims:
        try:
            name, _ = claim_name(pod, entry, made)
        except ClaimError:
            continue
        if name:
            found.append(f"{namespace_of(pod)}/{name}")
    extended = pod.status.extended_resource_claim_status
    return [*found, f"{namespace_of(pod)}/{extended.resource_claim_name}"] if extended is not None else found


def _templates(pod: core_v1.Pod) -> set[str]:
    """Index function: the keys of the templates that a pod's claims are made from."""
    names = {entry.resource_claim_template_name for entry in pod.spec.resource_claims}
    return {f"{namespace_of(pod)}/{name}" for name in names if name}


class ResourceClaimController:
    """Follows pods, claims and templates."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("resource_claim")
        self._pods = context.informers.of(core_v1.Pod)
        self._claims = context.informers.of(resource_v1.ResourceClaim)
        self._templates = context.informers.of(resource_v1.ResourceClaimTemplate)
        self._claims.add_index(_OF_POD, _maker)
        self._pods.add_index(_USERS, _claims)
        self._pods.add_index(_MADE_FROM, _templates)
        self._made: dict[str, dict[str, str]] = {}
        """Pod UID to its entries and the claims made for them, which the informer may not show yet."""
        self.controller = Controller(
            "resource claims", self.reconcile, workers=12, each=4, queue="resource_claim", clock=context.clock
        )
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(self._claim_changed)
        self._templates.subscribe(self._template_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # -- what informers say -----------------------------------------------------------------------------------------
    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        pod = change.new
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        if change.type == "DELETED":
            self._made.pop(pod.metadata.uid or "", None)
        if change.type == "DELETED" or is_done(pod):
            for key in _claims(pod):
                self.controller.enqueue(_CLAIM + key)
        else:
            self.controller.enqueue(_POD + change.key)

    def _claim_changed(self, change: Change[resource_v1.ResourceClaim]) -> None:
        self.controller.enqueue(_CLAIM + change.key)
        owner = controller_of(change.new)
        if owner is not None and change.type == "DELETED":
            self.controller.enqueue(f"{_POD}{namespace_of(change.new)}/{owner.name}")
        elif change.old is None or change.old.status.allocation != change.new.status.allocation:
            for pod in self._pods.by_index(_USERS, change.key):
                if pod.spec.node_name:
                    self.controller.enqueue(_POD + key_of(pod))

    def _template_changed(self, change: Change[resource_v1.ResourceClaimTemplate]) -> None:
        if change.type != "ADDED":
            return
        for pod in self._pods.by_index(_MADE_FROM, change.key):
            self.controller.enqueue(_POD + key_of(pod))

    async def reconcile(self, key: str) -> None:
        """See to one pod's claims, or to one claim."""
        if key.startswith(_POD):
            await self._see_to_pod(key.removeprefix(_POD))
        else:
            await self._see_to_claim(key.removeprefix(_CLAIM))

    # -- pods -------------------------------------------------------------------------------------------------------
    async def _see_to_pod(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or is_done(pod):
            return
        new: dict[str, str] = {}
        reported = made_claims(pod)
        known = {
            claim.metadata.annotations.get(POD_CLAIM): claim
            for claim in self._claims.by_index(_OF_POD, f"{namespace_of(pod)}/{pod.metadata.uid}")
            if claim.metadata.deletion_timestamp is None
        }
        for entry in pod.spec.resource_claims:
            try:
                made = await self._make(pod, entry, reported, known)
            except StatusError as error:
                text = f"PodResourceClaim {entry.name}: {error}"
                self._recorder.event(pod, "Warning", "FailedResourceClaimCreation", text)
                raise
            if made:
                new[entry.name] = made
        if new:
            statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in new.items()]
            patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}}
            name, namespace = name_of(pod), namespace_of(pod)
            await self._client.patch(core_v1.Pod, name, namespace, patch, type=STRATEGIC, subresource="status")
        if pod.spec.node_name:
            await self._reserve(pod)

    async def _make(
        self,
        pod: core_v1.Pod,
        entry: core_v1.PodResourceClaim,
        reported: Mapping[str, str | None],
        known: Mapping[str | None, resource_v1.ResourceClaim],
    ) -> str:
        """Return the name of a claim that the pod's status does not have yet; "" where there is nothing to do.

        `reported` are the claims in the pod's status, `known` those that are there, both by entry.
        """
        if entry.resource_claim_template_name is None:
            return ""
        made = self._made.setdefault(pod.metadata.uid or "", {})
        if entry.name in reported:
            name = reported[entry.name]
            if name is None or self._owned(pod, name):
                return ""
            if made.get(entry.name) == name:
                if self._claims.get(f"{namespace_of(pod)}/{name}") or await self._live(namespace_of(pod), name):
                    return ""
                del made[entry.name]
        if entry.name in known:
            return name_of(known[entry.name])
        if entry.name in made:
            return made[entry.name]
        template = self._templates.get(f"{namespace_of(pod)}/{entry.resource_claim_template_name}")
        if template is None:
            # Retried with back-off: the informer may be behind, and the role has no `get` of templates.
            raise errors.not_found(
                "resource.k8s.io", "resourceclaimtemplates", entry.resource_claim_template_name or ""
            )
        created = await self._client.create(claim_from(pod, entry, template))
        made[entry.name] = name_of(created)
        return made[entry.name]

    def _owned(self, pod: core_v1.Pod, name: str) -> bool:
        claim = self._claims.get(f"{namespace_of(pod)}/{name}")
        return claim is not None and is_owner(pod, claim)

    async def _live(self, namespace: str, name: str) -> resource_v1.ResourceClaim | None:
        try:
            return await self._client.get(resource_v1.ResourceClaim, name, namespace)
        except StatusError as error:
            if error.not_found:
                return None
            raise

    async def _reserve(self, pod: core_v1.Pod) -> None:
        """Reserve allocated claims for a pod that came to its node without the scheduler."""
        for key in _claims(pod):
            claim = self._claims.get(key)
            if claim is None or claim.status.allocation is None or is_reserved_for(claim, pod):
                continue
            if can_be_reserved(claim):
                consumer = resource_v1.ResourceClaimConsumerReference(
                    resource="pods", name=name_of(pod), uid=pod.metadata.uid or ""
                )
                reserved = [*claim.status.reserved_for, consumer]
                await self._set_status(claim, reserved, claim.status.allocation)

    # -- claims -----------------------------------------------------------------------------------------------------
    async def _see_to_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        before = claim.status.reserved_for
        kept = [consumer for consumer in before if await self._uses(namespace_of(claim), consumer)]
        protected = FINALIZER in claim.metadata.finalizers
        if len(kept) < len(before):
            gives_back = not kept and protected
            claim = await self._set_status(claim, kept, None if gives_back else claim.status.allocation)
            if claim.status.allocation is None:
                claim = await self._unprotect(claim)
        elif protected and claim.metadata.deletion_timestamp is not None and not kept:
            if claim.status.allocation is not None:
                claim = await self._set_status(claim, [], None)
            claim = await self._unprotect(claim)
        if not kept:
            await self._delete_unused(claim)

    async def _uses(self, namespace: str, consumer: resource_v1.ResourceClaimConsumerReference) -> bool:
        """True while a consumer may still use the claim; raises ValueError for consumers that are no pods."""
        if consumer.api_group or consumer.resource != "pods":
            raise ValueError(f"unsupported ReservedFor entry: {consumer}")
        pod = self._pods.get(f"{namespace}/{consumer.name}")
        if pod is None:  # the claim may have been reserved for a pod that our copy does not show yet
            try:
                pod = await self._client.get(core_v1.Pod, consumer.name, namespace)
            except StatusError as error:
                if not error.not_found:
                    raise
                return False
        return pod.metadata.uid == consumer.uid and not is_done(pod)

    async def _set_status(
        self,
        claim: resource_v1.ResourceClaim,
        reserved: list[resource_v1.ResourceClaimConsumerReference],
        allocation: resource_v1.AllocationResult | None,
    ) -> resource_v1.ResourceClaim:
        devices = claim.status.devices if allocation is not None else []
        status = msgspec.structs.replace(claim.status, reserved_for=reserved, allocation=allocation, devices=devices)
        return await self._client.update_status(msgspec.structs.replace(claim, status=status))

    async def _unprotect(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        if FINALIZER not in claim.metadata.finalizers:
            return claim
        left = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
        metadata = msgspec.structs.replace(claim.metadata, finalizers=left)
        return await self._client.update(msgspec.structs.replace(claim, metadata=metadata))

    async def _delete_unused(self, claim: resource_v1.ResourceClaim) -> None:
        """Delete a claim that was made for a pod which does not need it any more."""
        owner = controller_of(claim)
        if owner is None or owner.kind != "Pod" or claim.metadata.deletion_timestamp is not None:
            return
        pod = self._pods.get(f"{namespace_of(claim)}/{owner.name}")
        if pod is None or (pod.metadata.uid == owner.uid and not is_done(pod)):
            return  # of a pod that is gone the garbage collector takes it
        await delete_if_present(
            self._client, resource_v1.ResourceClaim, name_of(claim), namespace_of(claim), uid=claim.metadata.uid or ""
        )
