"""Custom resources in a real cluster: a definition and what it owns, as kubectl, controllers and other users see them."""

from __future__ import annotations

import json

from tests.contract.test_custom_resources_beside import CRONTAB, MANIFEST
from tests.support.cluster import Cluster, eventually

NAME = "crontabs.stable.example.com"


def test_a_kind_comes_is_used_by_others_and_goes_with_everything_it_owns(shared: Cluster, ns: str) -> None:
    mine = CRONTAB.replace("namespace: default", f"namespace: {ns}")
    try:
        shared.kubectl("apply", "-f", "-", input=MANIFEST)
        shared.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=120s")
        shared.kubectl("apply", "-f", "-", input=mine)
        uid = json.loads(shared.kubectl("get", "ct", "mine", "-n", ns, "-o", "json").stdout)["metadata"]["uid"]
        owner = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "name": "mine", "uid": uid}
        owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]}}
        shared.kubectl("create", "-n", ns, "-f", "-", input=json.dumps(owned))

        user = f"--as=system:serviceaccount:{ns}:default"
        refused = shared.kubectl("get", "ct", "-n", ns, user, check=False)
        assert "cannot list resource" in refused.stderr
        shared.kubectl("create", "role", "crontabs", "--verb=get,list", f"--resource={NAME}", "-n", ns)
        shared.kubectl(
            "create", "rolebinding", "crontabs", "--role=crontabs", f"--serviceaccount={ns}:default", "-n", ns
        )
        eventually(lambda: shared.kubectl("get", "ct", "-n", ns, user, check=False).returncode == 0, "the role counts")

        shared.kubectl("scale", "ct/mine", "-n", ns, "--replicas=4")
        rows = shared.kubectl("get", "ct", "-n", ns).stdout.splitlines()
        assert rows[1].split()[-2] == "4"
        shared.kubectl("delete", "ct", "mine", "-n", ns)
        eventually(
            lambda: shared.kubectl("get", "configmap", "owned", "-n", ns, check=False).returncode != 0,
            "what it owned is collected",
        )
        shared.kubectl("apply", "-f", "-", input=mine)
    finally:
        shared.kubectl("delete", "crd", NAME, "--ignore-not-found", "--timeout=120s")
    assert "the server" in shared.kubectl("get", "crontabs", "-n", ns, check=False).stderr
