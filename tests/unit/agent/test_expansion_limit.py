"""References to variables: limit of the length that they add to a container's environment and command."""

from __future__ import annotations

import pytest

from agent.podspec.environment import LONGEST, ContainerConfigError, EnvironmentSources, environment, expand, expand_all
from kube.api import core_v1


class NoReferences:
    def config_map(self, namespace: str, name: str) -> None:
        return None

    def secret(self, namespace: str, name: str) -> None:
        return None


def variables(*env: tuple[str, str]) -> dict[str, str]:
    container = core_v1.Container(name="c", env=[core_v1.EnvVar(name=name, value=value) for name, value in env])
    return environment(core_v1.Pod(), container, EnvironmentSources(NoReferences(), {}))


def test_variables_that_double_each_other_are_refused() -> None:
    doubling = [("A0", "x" * 1024), *[(f"A{i + 1}", f"$(A{i})$(A{i})") for i in range(60)]]
    assert len(variables(*doubling[:5])["A4"]) == 16 * 1024
    with pytest.raises(ContainerConfigError, match=f"add more than {LONGEST} characters"):
        variables(*doubling)


def test_many_variables_share_the_limit() -> None:
    with pytest.raises(ContainerConfigError):
        variables(("A", "x" * 100_000), *[(f"B{i}", "$(A)") for i in range(100)])


def test_a_long_text_of_its_own_is_not_counted() -> None:
    long = "x" * (2 * LONGEST)
    assert variables(("A", long))["A"] == long
    assert expand(long, {}) == long


def test_arguments_share_the_limit() -> None:
    values = {"A": "x" * 100_000}
    assert len(expand_all(["$(A)"] * 10, values)) == 10
    with pytest.raises(ContainerConfigError):
        expand_all(["$(A)"] * 11, values)
    with pytest.raises(ContainerConfigError):
        expand("$(A)" * 1_000_000, values)
