"""A release's life through Helm 4, in a process on the cluster's machine: python -m tests.support.helm4 KUBECONFIG NAMESPACE.

It prints a line of JSON for each step. The package is helm-python-sdk, which contains Helm's own Go library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import helm_python as helm

from tests.support.cluster import BUSYBOX, WEB_IMAGE

CHART = Path(__file__).parent / "chart"
VALUES = {"image": WEB_IMAGE, "tools": BUSYBOX}
WAIT: dict[str, Any] = {"wait": "watcher", "timeout": 90}
"""Helm 4 computes the readiness of objects from watches, with kstatus."""


def tell(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)


def summary(release: Any) -> dict[str, Any]:
    return {key: value for key, value in release.items() if isinstance(value, str | int) and key != "manifest"}


def main(kubeconfig: str, namespace: str) -> None:
    tell("version", version=helm.helm_sdk_version())
    with helm.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        made = config.install(CHART, "quay", VALUES, namespace=namespace, **WAIT)
        tell("installed", **summary(made))
        upgraded = config.upgrade(CHART, "quay", {**VALUES, "page": "three", "replicas": 2}, **WAIT)
        tell("upgraded", **summary(upgraded))
        try:
            config.upgrade(CHART, "quay", {**VALUES, "replicas": -1}, rollback_on_failure=True, **WAIT)
        except helm.HelmError as error:
            tell("failed", error=str(error))
        config.rollback("quay", version=1, **WAIT)
        history = config.history("quay")
        tell("rolled back", history=[summary(each) for each in history])
        tell("values", values=config.get_values("quay"))
        tell("uninstalled", info=config.uninstall("quay", wait="watcher", timeout=90).get("info", ""))
        tell("listed", names=[each["name"] for each in config.list()])


if __name__ == "__main__":
    main(*sys.argv[1:])
