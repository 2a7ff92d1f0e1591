"""Type errors of a policy's expressions are reported in its status, and only there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.server_tasks import policy_checking
from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]}
BOATS = {**DEPLOYMENTS, "apiGroups": ["types.example"], "resources": ["boats"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        spec = {"type": "object", "properties": {"crew": {"type": "integer"}, "namespace": {"type": "string"}}}
        schema = {"type": "object", "properties": {"spec": spec}}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
        definition = {
            "metadata": {"name": "boats.types.example"},
            "spec": {"group": "types.example", "scope": "Namespaced", "names": names, "versions": [version]},
        }
        await api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        async with asyncio.timeout(30):
            while (await api.request("GET", "/apis/types.example/v1/boats")).status != 200:
                await asyncio.sleep(0.05)
        yield api


async def checked(server: ApiUnderTest, name: str, generation: int = 1) -> list[Object]:
    """Wait until a generation was looked at, and return what is warned of."""
    async with asyncio.timeout(30):
        while True:
            status = (await server.request("GET", f"{POLICIES}/{name}")).json.get("status") or {}
            if status.get("observedGeneration") == generation:
                warnings: list[Object] = status["typeChecking"].get("expressionWarnings", [])
                return warnings
            await asyncio.sleep(0.05)


def policy(name: str, validations: list[Object], *rules: Object, **more: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": list(rules)}, "validations": validations, **more},
    }


async def test_rules_with_long_lists_are_checked_against_the_kinds_that_exist(server: ApiUnderTest) -> None:
    lists = {"apiGroups": "g", "apiVersions": "v", "resources": "r"}
    long = {key: [f"{text}{number}" for number in range(3000)] for key, text in lists.items()}
    rule = {**DEPLOYMENTS, **{key: [*DEPLOYMENTS[key], *values] for key, values in long.items()}}
    body = policy("long-lists", [{"expression": "object.nothing == 1"}], rule)
    assert (await server.request("POST", POLICIES, body)).status == 201
    (warning,) = await checked(server, "long-lists")
    assert (
        warning["warning"].startswith("apps/v1, Kind=Deployment: ERROR")
        and "undefined field 'nothing'" in warning["warning"]
    )


async def test_a_policy_that_takes_too_long_is_not_checked_again(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_checking, "CHECK_SECONDS", -1)
    body = policy("slow", [{"expression": "object.nothing == 1"}], DEPLOYMENTS)
    assert (await server.request("POST", POLICIES, body)).status == 201
    assert await checked(server, "slow") == []


async def test_an_unknown_field_of_a_kind_is_reported_with_its_path(server: ApiUnderTest) -> None:
    message = "'too many: ' + string(object.spec.replicas)"
    rules = [
        {"expression": "object.spec.replicas <= 5", "messageExpression": message},
        {"expression": "object.replicas > 1", "messageExpression": "'no ' + object.spec.replicas"},
    ]
    await server.request("POST", POLICIES, policy("wrong", rules, DEPLOYMENTS))
    first, second = await checked(server, "wrong")
    assert first["fieldRef"] == "spec.validations[1].expression"
    assert first["warning"] == (
        "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n"
    )
    assert second["fieldRef"] == "spec.validations[1].messageExpression"
    assert "found no matching overload for '_+_' applied to '(string, int)'" in second["warning"]
    described = (await server.kubectl("describe", "validatingadmissionpolicy", "wrong")).stdout
    assert "Observed Generation:  1" in described and "undefined field 'replicas'" in described


async def test_a_new_generation_is_looked_at_again(server: ApiUnderTest) -> None:
    await server.request("POST", POLICIES, policy("mended", [{"expression": "object.nothing == 1"}], DEPLOYMENTS))
    assert await checked(server, "mended")
    change = [{"op": "replace", "path": "/spec/validations/0/expression", "value": "has(object.spec.paused)"}]
    await server.request("PATCH", f"{POLICIES}/mended", change, headers={"Content-Type": "application/json-patch+json"})
    assert await checked(server, "mended", 2) == []


async def test_every_kind_is_checked_custom_ones_too(server: ApiUnderTest) -> None:
    rules = [
        {"expression": "object.spec.crew > 2 && object.spec.namespace != ''"},
        {"expression": "object.metadata.name != ''"},
    ]
    await server.request("POST", POLICIES, policy("both", rules, BOATS, DEPLOYMENTS))
    (reported,) = await checked(server, "both")
    assert reported["warning"].startswith("apps/v1, Kind=Deployment: ") and "Kind=Boat" not in reported["warning"]
    await server.request("POST", POLICIES, policy("custom", [{"expression": "object.spec.mast == 1"}], BOATS))
    (reported,) = await checked(server, "custom")
    assert reported["warning"].startswith("types.example/v1, Kind=Boat: ERROR: <input>:1:12: undefined field 'mast'\n")


async def test_variables_and_parameters_have_types_and_wildcards_are_not_checked(server: ApiUnderTest) -> None:
    rules = [{"expression": "variables.count > params.data['most']"}, {"expression": "params.nothing == 1"}]
    more = {
        "variables": [{"name": "count", "expression": "object.spec.replicas"}],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    }
    await server.request("POST", POLICIES, policy("typed", rules, DEPLOYMENTS, **more))
    first, second = await checked(server, "typed")
    assert "'_>_' applied to '(int, string)'" in first["warning"] and "undefined field 'nothing'" in second["warning"]
    every = {**DEPLOYMENTS, "resources": ["*"]}
    await server.request("POST", POLICIES, policy("all", [{"expression": "object.nothing == 1"}], every))
    assert await checked(server, "all") == []


async def test_real_policies_are_not_warned_of(server: ApiUnderTest) -> None:
    expressions = [
        "object.spec.template.spec.containers.all(c, c.image.startsWith('r.example/') && !has(c.securityContext.privileged))",
        "object.metadata.?labels['team'].orValue('') != '' || object.metadata.namespace == 'kube-system'",
        "quantity(string(object.spec.template.spec.containers[0].resources.limits['cpu'])).isLessThan(quantity('2'))",
        "oldObject == null || object.spec.selector == oldObject.spec.selector",
        "timestamp(object.metadata.creationTimestamp) < timestamp('2030-01-01T00:00:00Z')",
        "object.spec.strategy.rollingUpdate.maxSurge == 1 || authorizer.requestResource.check('x').allowed()",
        "namespaceObject.metadata.labels['env'] == 'prod' && request.userInfo.username != ''",
    ]
    await server.request("POST", POLICIES, policy("real", [{"expression": text} for text in expressions], DEPLOYMENTS))
    assert await checked(server, "real") == []
