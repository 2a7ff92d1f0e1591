"""Invokes one webhook. If it fails the request is denied or continues without it, by its failurePolicy."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from control.admission import object_work
from control.admission.matching import Invocation
from control.admission.metrics import WEBHOOK_FAIL_OPEN, WEBHOOK_REJECTIONS, WEBHOOK_REQUESTS, WEBHOOK_SECONDS
from control.admission.policies.environment import settled, values
from control.admission.webhooks.caller import Caller, CallFailed
from control.admission.webhooks.review import BadAnswer, Verdict, read, refusal, request_for
from control.auth.user import Authorizer
from control.event_loop import offload
from control.interfaces.admission import Attributes
from control.interfaces.lookup import Lookup
from control.policy_expressions.conditions import Unclear, met, of_webhook
from kube import errors
from kube.json_object import Object
from kube.owners import owner_of
from kube.tracing import spans

log = logging.getLogger(__name__)


class WebhookInvoker:
    """Invokes webhooks for the mutating and the validating plugin."""

    def __init__(self, lookup: Lookup, caller: Caller, authorizer: Authorizer) -> None:
        self.lookup, self.caller, self._authorizer = lookup, caller, authorizer

    async def concerns(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Return whether a webhook's match conditions are met; raises 403 if that cannot be evaluated and failures count."""
        conditions = invocation.hook.get("matchConditions")
        if not conditions:
            return True
        given = await values(self.lookup, self._authorizer, attributes, invocation.resource)
        try:
            return await settled(attributes.user.name, given, lambda: _met(conditions, given))
        except Unclear as error:
            if invocation.hook.get("failurePolicy") == "Ignore":
                return False
            resource = attributes.resource
            raise errors.forbidden(resource.group, resource.plural, attributes.name, str(error)) from error

    async def invoke(self, invocation: Invocation, attributes: Attributes, phase: str) -> Verdict | None:
        """Return the response of a webhook; None if it failed and is ignored. Raises its denial, or 500.

        `phase` ("mutating" or "validating") stands in the audit annotation of a failure that is ignored.
        """
        hook = invocation.hook
        if attributes.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f'admission webhook "{invocation.name}" does not support dry run')
        sent = await request_for(invocation, attributes)
        with spans.child(f"Call {phase} webhook", _span_attributes(invocation, attributes)) as span:
            verdict = await self._call(invocation, attributes, phase, sent)
            if span is not None and verdict is None:
                span.fail("calling_webhook_error")
        return verdict

    async def _call(self, invocation: Invocation, attributes: Attributes, phase: str, sent: Object) -> Verdict | None:
        """Call a webhook, and count the call and its verdict."""
        hook = invocation.hook
        start, labels = time.perf_counter(), (invocation.name, attributes.operation)
        kind = "admit" if phase == "mutating" else "validating"
        try:
            answer = await self.caller.call(
                hook.get("clientConfig") or {},
                msgspec.Raw(await object_work.run(attributes, msgspec.json.encode, sent)),
                float(hook.get("timeoutSeconds") or 10),
                owner_of(attributes.user.name),
            )
            mutating = phase == "mutating"
            verdict = await offload.run(attributes.user.name, len(answer), read, answer, sent, mutating=mutating)
        except (CallFailed, BadAnswer) as error:
            rejected = "true" if hook.get("failurePolicy") != "Ignore" else "false"
            WEBHOOK_SECONDS.observe(*labels, rejected, kind, time.perf_counter() - start)
            WEBHOOK_REQUESTS.add("500", *labels, rejected, kind)
            if rejected == "true":
                WEBHOOK_REJECTIONS.add("calling_webhook_error", *labels, "0", kind)
            else:
                WEBHOOK_FAIL_OPEN.add(invocation.name, kind)
            self.failed(invocation, attributes, phase, error)
            return None
        code = 200 if verdict.allowed else int(verdict.status.get("code") or 403)
        rejected = "false" if verdict.allowed else "true"
        WEBHOOK_SECONDS.observe(*labels, rejected, kind, time.perf_counter() - start)
        WEBHOOK_REQUESTS.add(str(code), *labels, rejected, kind)
        if not verdict.allowed:
            WEBHOOK_REJECTIONS.add("no_error", *labels, str(code), kind)
        attributes.warnings += [text[:256] for text in verdict.warnings]
        for key, value in verdict.annotations.items():
            attributes.annotations.setdefault(f"{invocation.name}/{key}", value)
        if not verdict.allowed:
            raise refusal(invocation.name, verdict.status)
        return verdict

    def failed(self, invocation: Invocation, attributes: Attributes, phase: str, error: Exception) -> None:
        """Refuse the request with 500, or note that it continues without the webhook."""
        why = f'failed calling webhook "{invocation.name}": {error}'
        if invocation.hook.get("failurePolicy") != "Ignore":
            refused = errors.internal(why)
            refused.refused_by = f"admission webhook {invocation.name}, which cannot be called"
            raise refused from error
        log.warning("%s; the request continues without it", why)
        key = f"failed-open.{phase}.webhook.admission.k8s.io/round_0_index_{invocation.index}"
        attributes.annotations[key] = invocation.name


def _span_attributes(invocation: Invocation, attributes: Attributes) -> dict[str, str | int | bool]:
    """Return what upstream's span of a call has (apiserver/pkg/admission/plugin/webhook)."""
    resource = attributes.resource
    return {
        "configuration": invocation.configuration,
        "webhook": invocation.name,
        "resource": f"{resource.group}/{resource.version}, Resource={resource.plural}",
        "subresource": attributes.subresource,
        "operation": attributes.operation,
    }


def _met(conditions: Sequence[Object], given: Mapping[str, Any]) -> bool:
    """Return whether all match conditions hold; raises Unclear."""
    return met([of_webhook(condition.get("expression") or "") for condition in conditions], given)
