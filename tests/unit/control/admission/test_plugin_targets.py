"""The resources that a plugin names are all that it handles: the chain does not even call it for others."""

from __future__ import annotations

import itertools

import pytest

from control.admission import plugins
from control.admission.chain import Chain
from control.auth.user import AuthzAttributes, UserInfo
from control.interfaces.admission import Attributes, Operation, Plugin
from kube.resources import RESOURCES
from tests.support.lookup import attributes

OPERATIONS: tuple[Operation, ...] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
LIMITED = [
    made
    for made in Plugin.__subclasses__()
    if made.__module__.startswith(plugins.__package__) and made.targets is not None
]


@pytest.mark.parametrize("made", LIMITED, ids=lambda made: made.__name__)
def test_a_plugin_handles_only_the_resources_that_it_names(made: type[Plugin]) -> None:
    plugin, user = made.__new__(made), UserInfo("jane")
    others = [resource for resource in RESOURCES if resource.target not in (made.targets or ())]
    for resource, operation in itertools.product(others, OPERATIONS):
        for subresource in ("", *resource.subresources):
            asked = AuthzAttributes(
                user=user, verb="update", group=resource.group, version=resource.version, resource=resource.plural
            )
            request = Attributes(
                resource=resource,
                operation=operation,
                user=user,
                namespace="shop",
                name="a",
                subresource=subresource,
                obj={"metadata": {}},
                old={"metadata": {}},
            )
            request.asked = asked
            assert not plugin.handles(request), (resource.target, operation, subresource)


async def test_a_plugin_is_called_for_the_resources_that_it_names_and_in_its_place() -> None:
    called: list[str] = []

    class Anything(Plugin):
        name = "anything"

        async def admit(self, attributes: Attributes) -> None:
            called.append(self.name)

    class Pods(Anything):
        name, targets = "pods", ("pods",)

    class Last(Anything):
        name = "last"

    chain = Chain([Anything(), Pods(), Last()])
    await chain.admit(attributes("pods", obj={"metadata": {}}))
    assert called == ["anything", "pods", "last"]
    called.clear()
    await chain.admit(attributes("configmaps", obj={"metadata": {}}))
    assert called == ["anything", "last"]
