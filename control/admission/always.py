"""AlwaysAdmit and AlwaysDeny (off by default, deprecated upstream): admit everything, or reject everything."""

from __future__ import annotations

from control.admission.plugin import Attributes, Plugin
from control.admission.refusal import refuse


class AlwaysAdmit(Plugin):
    name = "AlwaysAdmit"


class AlwaysDeny(Plugin):
    name = "AlwaysDeny"

    async def admit(self, attributes: Attributes) -> None:
        raise refuse(attributes, "admission control is denying all modifications")

    validate = admit
