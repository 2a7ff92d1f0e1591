"""The function that finds causes, for each kind that has one."""

from __future__ import annotations

from typing import Any

from kube.api import apps_v1, core_v1
from wherry.why.causes import pods, workloads
from wherry.why.diagnosis import Finder

FINDERS: dict[type[Any], Finder] = {
    core_v1.Pod: pods.causes,
    core_v1.ReplicationController: workloads.replicas,
    apps_v1.Deployment: workloads.deployment,
    apps_v1.ReplicaSet: workloads.replicas,
    apps_v1.StatefulSet: workloads.replicas,
    apps_v1.DaemonSet: workloads.replicas,
}
