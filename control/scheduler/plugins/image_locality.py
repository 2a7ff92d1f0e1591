"""ImageLocality: prefer nodes that have the pod's images, the larger the better.

An image counts by its size times the share of nodes that have it, so that one node with a rare image does not draw all
pods to itself.
"""

from __future__ import annotations

from control.scheduler.cluster import Cluster
from control.scheduler.framework import MAX_SCORE
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo

LEAST, MOST = 23 * 1024 * 1024, 1000 * 1024 * 1024
"""Bytes: below the first an image gives no points; the second, times the containers, gives all."""


class ImageLocality:
    name = "ImageLocality"
    weight = 1
    normalized = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Scale the bytes that are there to 0 .. 100."""
        if not node.images:
            return 0
        total = len(self._cluster.nodes) or 1
        found = 0
        for image in pod.images.keys() & node.images.keys():
            share = node.images[image] * self._cluster.image_nodes.get(image, 1) // total
            found += pod.images[image] * share
        most = MOST * pod.images.total()
        return MAX_SCORE * (min(max(found, LEAST), most) - LEAST) // (most - LEAST) if pod.images else 0
