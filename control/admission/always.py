"""AlwaysAdmit and AlwaysDeny (off by default, deprecated upstream): admit everything, or reject everything."""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin


class AlwaysAdmit(Plugin):
    name = "AlwaysAdmit"


class AlwaysDeny(Plugin):
    name = "AlwaysDeny"

    async def admit(self, attributes: Attributes) -> None:
        raise refuse(attributes, "admission control is denying all modifications")

    validate = admit
