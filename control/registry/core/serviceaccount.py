"""ServiceAccounts: identities of pods."""

from __future__ import annotations

from control.registry.field_values import field_value
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, count
from kube.json_object import Object

MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(Strategy):
    returns_deleted = True
    columns = (NAME, Column("Secrets", count("secrets"), "How many secrets pods of this account may use."), AGE)
    has_generation = False

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        now, before = (field_value(o, "metadata.annotations") or {} for o in (obj, old))
        if MOUNTABLE not in now or MOUNTABLE in before:
            return []
        text = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        return [f"metadata.annotations[{MOUNTABLE}]: {text}"]
