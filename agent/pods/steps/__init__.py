"""The steps of a pod's sync and of its termination: functions over a PodContext. Only the pod's worker imports them."""
