"""Warnings about deprecated labels of nodes and deprecated kinds of volumes."""

from __future__ import annotations

from collections.abc import Iterator

from kube.json_object import Object

OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
OLD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
OLD_VOLUMES_SPELLED = {"storageos": "storageOS"}


def term_warnings(term: Object, path: str) -> Iterator[str]:
    """Yield a warning for every deprecated label in a node selector term."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        key = expression.get("key")
        if key in OLD_LABELS:
            yield f"{path}.matchExpressions[{index}].key: {key} is {OLD_LABELS[key]}"
