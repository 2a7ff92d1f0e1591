"""A served version of a custom resource, as the row of the resource table that nobody wrote beforehand.

Everything that takes a `Resource` takes one of these. What a built-in kind has as a generated type and a strategy hangs
here as `parts`; two rows are the same only if they are the same object, because a changed definition makes new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kube.resources import Resource

if TYPE_CHECKING:
    from control.custom.decoder import CustomDecoder
    from control.custom.strategy import CustomStrategy
    from control.patch.schema import Node
    from control.schemas.schema import Schema


class Parts:
    """What a version is served with; filled in by whoever builds the row."""

    strategy: CustomStrategy
    decoder: CustomDecoder
    schema: Schema
    shape: Node
    """How its values merge, for server-side apply."""


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource(Resource):
    """One served version of a custom resource."""

    singular_name: str = ""
    list_kind_name: str = ""
    parts: Parts = field(default_factory=Parts)
    definition: dict[str, Any] = field(default_factory=dict)
    """The CustomResourceDefinition; read-only."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def singular(self) -> str:
        return self.singular_name

    @property
    def list_kind(self) -> str:
        return self.list_kind_name

    @property
    def type(self) -> Any:
        raise AttributeError(f"{self.target} has a schema, no type")

    @property
    def storage_prefix(self) -> str:
        """The prefix of its keys in the store, upstream's: "/registry/stable.example.com/crontabs/"."""
        return f"/registry/{self.group}/{self.plural}/"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return Resource.path(self, namespace, name, subresource)

    def key(self, namespace: str, name: str) -> str:
        return f"{self.storage_prefix}{namespace}/{name}" if self.namespaced else self.storage_prefix + name
