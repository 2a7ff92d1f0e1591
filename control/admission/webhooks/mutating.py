"""MutatingAdmissionWebhook: webhooks are called one after another, each with the object as changed by the previous ones.

Where one changed the object, the whole chain is gone through once more (`control.admission.chain`), so that the built-in
plugins see it too; in that second round only webhooks with reinvocationPolicy IfNeeded are asked again, and only if the
object changed after they were asked (upstream's mutating/reinvocationcontext.go).
"""

from __future__ import annotations

import operator
from functools import partial

import msgspec

from control.admission import object_work
from control.admission.matching import Invocation, concerned, exempt
from control.admission.versions import keep_identity, shown_as, taken_back
from control.admission.webhooks.invoker import WebhookInvoker
from control.interfaces.admission import MOST_CHANGES, Attributes, Plugin
from control.patch.json_patch import apply_json_patch
from control.registry.served import Executor
from kube import errors
from kube.errors import StatusError
from kube.json_object import copy_json

CONFIGURATIONS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"


class MutatingAdmissionWebhook(Plugin):
    name = "MutatingAdmissionWebhook"

    def __init__(self, invoker: WebhookInvoker) -> None:
        self._invoker = invoker

    async def admit(self, attributes: Attributes) -> None:
        configurations = list(self._invoker.lookup.list(CONFIGURATIONS))
        if not configurations or exempt(attributes):
            return
        rounds = attributes.reinvocation
        if rounds.second and rounds.asked:
            obj = await object_work.weighed(attributes)
            if await object_work.run(attributes, operator.ne, obj, rounds.left_by_webhooks):
                rounds.require_those_asked()
        for invocation in await concerned(self._invoker.lookup, configurations, attributes):
            if rounds.second and invocation.uid not in rounds.required:
                continue
            if not await self._invoker.concerns(invocation, attributes):
                continue
            changed = await self._ask(invocation, attributes)
            if changed:
                rounds.require_those_asked()
                rounds.wanted = True
            if invocation.hook.get("reinvocationPolicy") == "IfNeeded":
                rounds.asked.add(invocation.uid)
        if rounds.asked:
            obj = await object_work.weighed(attributes)
            rounds.left_by_webhooks = await object_work.run(attributes, copy_json, obj)

    async def _ask(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Call one webhook and apply its patch; return whether that changed the object."""
        verdict = await self._invoker.invoke(invocation, attributes, "mutating")
        if verdict is None or not verdict.patch or attributes.operation == "CONNECT":
            return False
        obj = await object_work.weighed(attributes)
        if obj is None:
            return False
        attributes.size = max(attributes.size, verdict.size)
        on_path, version = attributes.resource, invocation.resource
        run: Executor = partial(object_work.run, attributes)
        shown = await shown_as(obj, on_path, version, run)
        try:
            made = await run(apply_json_patch, shown, verdict.patch)
            object_work.weigh(attributes, made)  # copies may have made it large
            made = await taken_back(made, on_path, version, obj, run)
        except (StatusError, msgspec.ValidationError) as error:
            # The webhook did answer, so its failurePolicy does not apply (upstream's callAttrMutatingHook).
            why = "; ".join((str(error), *getattr(error, "__notes__", ())))
            raise errors.internal(f'the patch of webhook "{invocation.name}" cannot be applied: {why}') from error
        made = keep_identity(made, obj)
        if await run(operator.eq, made, obj):
            return False
        # In place: the object is the caller's.
        obj.clear()
        obj.update(made)
        paths = (operation.get("path") for operation in verdict.patch[:MOST_CHANGES] if operation is not None)
        attributes.changed(f"webhook {invocation.name}", *(str(path) for path in paths))
        return True
