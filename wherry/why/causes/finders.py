"""The function that finds causes, for each kind that has one."""

from __future__ import annotations

from typing import Any

from kube.api import (
    admissionregistration_v1,
    apiextensions_v1,
    apiregistration_v1,
    apps_v1,
    autoscaling_v2,
    batch_v1,
    core_v1,
    networking_v1,
    policy_v1,
)
from wherry.why.causes import (
    autoscalers,
    budgets,
    extensions,
    ingresses,
    jobs,
    namespaces,
    nodes,
    pods,
    services,
    volume_claims,
    workloads,
)
from wherry.why.diagnosis import Finder

FINDERS: dict[type[Any], Finder] = {
    admissionregistration_v1.MutatingWebhookConfiguration: extensions.webhooks,
    admissionregistration_v1.ValidatingWebhookConfiguration: extensions.webhooks,
    apiextensions_v1.CustomResourceDefinition: extensions.definition,
    apiregistration_v1.APIService: extensions.api_service,
    apps_v1.DaemonSet: workloads.replicas,
    apps_v1.Deployment: workloads.deployment,
    apps_v1.ReplicaSet: workloads.replicas,
    apps_v1.StatefulSet: workloads.replicas,
    autoscaling_v2.HorizontalPodAutoscaler: autoscalers.causes,
    batch_v1.CronJob: jobs.cron_job,
    batch_v1.Job: jobs.job,
    networking_v1.Ingress: ingresses.causes,
    core_v1.Namespace: namespaces.causes,
    core_v1.Node: nodes.causes,
    core_v1.PersistentVolume: volume_claims.volume,
    core_v1.PersistentVolumeClaim: volume_claims.claim,
    core_v1.Pod: pods.causes,
    core_v1.ReplicationController: workloads.replicas,
    core_v1.Service: services.causes,
    policy_v1.PodDisruptionBudget: budgets.causes,
}
