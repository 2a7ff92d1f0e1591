"""ComponentStatuses: health of the control plane's components, computed for each request, never stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.strategy import Strategy
from control.registry.table_cells import NAME, Column, name_of
from kube.json_object import Object


class ComponentStatusStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", description="Whether the component is healthy."),
        Column("Message", description="What it says."),
        Column("Error", description="What went wrong."),
    )
    has_generation = False
    api_warning = "v1 ComponentStatus is deprecated in v1.19+"

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status, message, error = "Unknown", "", ""
        for condition in obj.get("conditions") or ():
            if condition.get("type") == "Healthy":
                status = "Healthy" if condition.get("status") == "True" else "Unhealthy"
                message, error = condition.get("message") or "", condition.get("error") or ""
        return [name_of(obj), status, message, error]
