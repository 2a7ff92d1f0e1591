"""Label keys whose values are the pod's own, as the selectors that are stored."""

from typing import Any

import pytest

from tests.unit.control.registry.strategies import container, created, pod, problems

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def labelled(**spec: Any) -> dict[str, Any]:
    made = pod(containers=[container()], **spec)
    made["metadata"]["labels"] = {"app": "web", "hash": "h1"}
    return made


def term(**more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", **more}


def test_values_are_written_into_the_selectors_of_a_new_pod() -> None:
    wanted = {
        "podAffinity": {HARD: [term(matchLabelKeys=["hash", "absent"])]},
        "podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": term(mismatchLabelKeys=["hash"])}]},
    }
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term(matchLabelKeys=["hash"])}
    spec = created(labelled(affinity=wanted, topologySpreadConstraints=[spread]))["spec"]
    equal = {"key": "hash", "operator": "In", "values": ["h1"]}
    assert spec["affinity"]["podAffinity"][HARD][0]["labelSelector"]["matchExpressions"] == [equal]
    other = spec["affinity"]["podAntiAffinity"][SOFT][0]["podAffinityTerm"]["labelSelector"]["matchExpressions"]
    assert other == [{"key": "hash", "operator": "NotIn", "values": ["h1"]}]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [equal]


def test_an_expression_that_the_selector_has_is_not_added_again() -> None:
    equal = {"key": "hash", "operator": "In", "values": ["h1"]}
    other = {"key": "hash", "operator": "Exists"}
    given = term(matchLabelKeys=["hash", "app", "hash"])
    given["labelSelector"]["matchExpressions"] = [equal, other]
    spec = created(labelled(affinity={"podAffinity": {HARD: [given]}}))["spec"]
    found = spec["affinity"]["podAffinity"][HARD][0]["labelSelector"]["matchExpressions"]
    assert found == [equal, other, {"key": "app", "operator": "In", "values": ["web"]}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            term(matchLabelKeys=["a"], mismatchLabelKeys=["a"]),
            'matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and mismatchLabelKeys',
        ),
        (
            {"topologyKey": "zone", "matchLabelKeys": ["a"]},
            "matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
        ),
    ],
)
def test_keys_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    found = problems(labelled(affinity={"podAffinity": {HARD: [given]}}))
    assert found == [f"spec.affinity.podAffinity.{HARD}[0].{message}"]
