"""ValidatingAdmissionWebhook: matching webhooks are called concurrently; the first denial in their order is returned."""

from __future__ import annotations

import asyncio

from control.admission.matching import concerned, exempt
from control.admission.webhooks.invoker import WebhookInvoker
from control.interfaces.admission import Attributes, Plugin

CONFIGURATIONS = "validatingwebhookconfigurations.admissionregistration.k8s.io"


class ValidatingAdmissionWebhook(Plugin):
    name = "ValidatingAdmissionWebhook"

    def __init__(self, invoker: WebhookInvoker) -> None:
        self._invoker = invoker

    async def validate(self, attributes: Attributes) -> None:
        configurations = list(self._invoker.lookup.list(CONFIGURATIONS))
        if not configurations or exempt(attributes):
            return
        found = await concerned(self._invoker.lookup, configurations, attributes)
        invocations = [invocation for invocation in found if await self._invoker.concerns(invocation, attributes)]
        answers = await asyncio.gather(
            *(self._invoker.invoke(invocation, attributes, "validating") for invocation in invocations),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
