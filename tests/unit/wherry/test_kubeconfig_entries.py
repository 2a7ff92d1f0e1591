"""The cluster's entries in a person's kubeconfig: added, updated, removed, and no other touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kube.kubeconfig import KubeconfigError
from wherry.kubeconfig_entries import Merged, Own, merged, without

OWN = Own("https://10.0.0.1:6443", "Y2E=", "Y2VydA==", "a2V5")
OTHER = """\
# written by hand
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- cluster: {server: https://work, certificate-authority-data: b3RoZXI=, x-unknown: 012}
  name: work
users:
- name: "jane"
  user: {token: '0123', exec: {command: login, args: [a, b]}}
contexts:
- {name: work, context: {cluster: work, user: jane, namespace: team}}
current-context: work
extensions: [{name: x, extension: {a: yes}}]
"""


def entries(text: str) -> dict[str, dict[str, Any]]:
    """Return the entries of each list by their names."""
    document = yaml.safe_load(text)
    return {
        part: {entry["name"]: entry[part[:-1]] for entry in document[part]}
        for part in ("clusters", "users", "contexts")
    }


def test_an_empty_file_gets_a_whole_kubeconfig_with_its_context_as_the_current_one() -> None:
    for text in ("", "# nothing\n", "---\n", "kind: Config\nclusters: null\n", "clusters: []\ncurrent-context: ''\n"):
        found = merged(text, OWN)
        assert (found.context, found.current) == ("wherry", True)
        assert entries(found.text) == {
            "clusters": {"wherry": {"server": OWN.server, "certificate-authority-data": OWN.ca}},
            "users": {"wherry": {"client-certificate-data": OWN.certificate, "client-key-data": OWN.key}},
            "contexts": {"wherry": {"cluster": "wherry", "user": "wherry"}},
        }
        assert yaml.safe_load(found.text)["current-context"] == "wherry"


def test_other_entries_keys_and_the_current_context_stay_as_they_are_written() -> None:
    found = merged(OTHER, OWN)
    assert (found.context, found.current) == ("wherry", False)
    document, before = yaml.safe_load(found.text), yaml.safe_load(OTHER)
    for part in ("clusters", "users", "contexts"):
        assert document[part].pop()["name"] == "wherry"
    assert document == before
    assert "x-unknown: 012" in found.text and "{a: yes}" in found.text and "'0123'" in found.text


def test_a_json_file_stays_readable() -> None:
    found = merged(json.dumps(yaml.safe_load(OTHER)), OWN)
    assert set(entries(found.text)["clusters"]) == {"work", "wherry"}


def test_a_second_merge_changes_nothing_and_keeps_comments() -> None:
    once = "# mine\n" + merged(OTHER, OWN).text
    assert merged(once, OWN) == Merged(once, "wherry", current=False)


def test_new_data_replace_the_old_and_what_a_person_added_to_the_entries_stays() -> None:
    text = merged("", OWN).text.replace("    user: wherry\n", "    user: wherry\n    namespace: mine\n")
    text = text.replace("    server:", "    proxy-url: socks5://p\n    server:")
    new = Own("https://10.0.0.1:7443", OWN.ca, "bmV3", "bmV3a2V5")
    for add in (True, False):
        found = entries(merged(text, new, add=add, former=frozenset([OWN.key])).text)
        assert found["clusters"]["wherry"]["server"] == new.server
        assert found["clusters"]["wherry"]["proxy-url"] == "socks5://p"
        assert found["users"]["wherry"] == {"client-certificate-data": "bmV3", "client-key-data": "bmV3a2V5"}
        assert found["contexts"]["wherry"]["namespace"] == "mine"


def test_a_context_that_was_renamed_or_changed_by_a_person_is_the_clusters() -> None:
    renamed = merged("", OWN).text.replace("- name: wherry\n  context", "- name: home\n  context")
    renamed = renamed.replace("current-context: wherry", "current-context: home")
    assert merged(renamed, OWN) == Merged(renamed, "home", current=True)
    assert without(renamed, OWN) == ""
    changed = merged("", OWN).text.replace("    user: wherry\n", "    user: dev\n")
    assert merged(changed, OWN) == Merged(changed, "wherry", current=True)


def test_entries_of_the_same_name_of_another_cluster_are_not_replaced() -> None:
    elsewhere = merged("", Own("https://10.0.0.2:6443", "ZWxzZQ==", "eA==", "eA==")).text
    context = "contexts:\n- name: wherry\n  context: {cluster: work, user: jane}\n"
    for text in (elsewhere, context, context.replace("wherry", "x") + "users:\n- name: wherry\n  user: {token: a}\n"):
        found = merged(text, OWN)
        assert found.context.startswith("wherry-") and len(found.context) == 15
        for part, kept in yaml.safe_load(text).items():
            if isinstance(kept, list):
                assert [entry for entry in yaml.safe_load(found.text)[part] if entry in kept] == kept
        assert merged(found.text, OWN).text == found.text
        assert yaml.safe_load(without(found.text, OWN))["contexts"] == yaml.safe_load(text)["contexts"]
        assert without(text, OWN) == text


def test_a_context_of_the_same_name_that_a_person_led_elsewhere_is_not_replaced() -> None:
    text = merged(OTHER, OWN).text.replace(
        "    cluster: wherry\n    user: wherry\n", "    cluster: work\n    user: jane\n"
    )
    found = merged(text, OWN)
    assert found.context.startswith("wherry-")
    assert entries(found.text)["contexts"]["wherry"] == {"cluster": "work", "user": "jane"}
    assert entries(without(found.text, OWN))["contexts"]["wherry"] == {"cluster": "work", "user": "jane"}


def test_without_add_a_kubeconfig_without_the_cluster_stays_and_no_deleted_context_comes_back() -> None:
    assert merged(OTHER, OWN, add=False) == Merged(OTHER, "", current=False)
    document = yaml.safe_load(merged("", OWN).text) | {"contexts": [], "current-context": ""}
    text = yaml.safe_dump(document)
    found = merged(text, Own("https://new", OWN.ca, OWN.certificate, OWN.key), add=False)
    assert found.context == "" and entries(found.text)["contexts"] == {}
    assert entries(found.text)["clusters"]["wherry"]["server"] == "https://new"
    assert merged(text, OWN).context == "wherry"


def test_only_the_clusters_entries_are_removed() -> None:
    assert yaml.safe_load(without(merged(OTHER, OWN).text, OWN)) == yaml.safe_load(OTHER)
    assert without(OTHER, OWN) == OTHER
    assert without(merged("", OWN).text, OWN) == ""
    used = merged(OTHER, OWN).text.replace("current-context: work", "current-context: wherry")
    assert yaml.safe_load(without(used, OWN))["current-context"] == ""
    assert without(used, Own(OWN.server, "ZWxzZQ==", "", "")) == used


def test_entries_that_another_context_refers_to_stay() -> None:
    text = merged("", OWN).text + "x: 1\n"
    text = text.replace("contexts:\n", "contexts:\n- name: dev\n  context: {cluster: wherry, user: dev}\n")
    found = entries(without(text, OWN))
    assert list(found["contexts"]) == ["dev"] and list(found["clusters"]) == ["wherry"] and not found["users"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "it is no kubeconfig: invalid YAML in line 1"),
        ("a: 1\n---\nb: 2\n", "it is no kubeconfig: invalid YAML in line 2"),
        ("token", "it is no kubeconfig"),
        ("[]", "it is no kubeconfig"),
        ("kind: Pod", "it is no kubeconfig"),
        ("clusters: {a: b}", "it is no kubeconfig: clusters is no list of entries"),
        ("users: [a]", "it is no kubeconfig: users is no list of entries"),
        ("clusters: []\nclusters: []", "it is no kubeconfig: clusters is there twice"),
        ("[" * 20000, "it is no kubeconfig: invalid YAML"),
        ("a: \x01", "it is no kubeconfig: invalid YAML"),
    ],
    ids=["yaml", "documents", "scalar", "list", "kind", "mapping", "entry", "twice", "deep", "control"],
)
def test_a_damaged_file_is_refused_with_one_sentence_without_its_text(text: str, reason: str) -> None:
    for do in (merged, without):
        with pytest.raises(KubeconfigError) as found:
            do(text, OWN)
        assert str(found.value) == reason


def test_unusual_yaml_is_no_error() -> None:
    for text in ("? [a]\n: 1\n", "a: &a [*a]\n", "x: &x {k: 1}\ny: *x\n", "clusters: [{cluster: null}]\n"):
        found = merged(text, OWN)
        assert found.context == "wherry" and merged(found.text, OWN).text == found.text
        assert without(found.text, OWN) != ""
