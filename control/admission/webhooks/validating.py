"""ValidatingAdmissionWebhook: all webhooks that a request concerns are asked at once; the first refusal in order counts."""

from __future__ import annotations

import asyncio

from control.admission.matching import concerned, exempt
from control.admission.plugin import Attributes, Plugin
from control.admission.webhooks.asking import Asker

CONFIGURATIONS = "validatingwebhookconfigurations.admissionregistration.k8s.io"


class ValidatingAdmissionWebhook(Plugin):
    name = "ValidatingAdmissionWebhook"

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def validate(self, attributes: Attributes) -> None:
        configurations = list(self._asker.lookup.list(CONFIGURATIONS))
        if not configurations or exempt(attributes):
            return
        found = await concerned(self._asker.lookup, configurations, attributes)
        invocations = [invocation for invocation in found if await self._asker.concerns(invocation, attributes)]
        answers = await asyncio.gather(
            *(self._asker.ask(invocation, attributes, "validating") for invocation in invocations),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
