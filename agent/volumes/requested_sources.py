"""Limit of projected volume sources that need API requests: service account tokens and trust bundles.

Each token of another audience or lifetime is a request for each of its lifetimes, and a pod may have thousands of sources. The
limit of files (payload.py) counts what has been received.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1

MOST = 64
"""Such sources of a pod."""


def too_many(volumes: Iterable[core_v1.Volume]) -> tuple[str, str] | None:
    """Return the volume that exceeds the limit, and the reason; None if there is none."""
    found, exceeding = 0, ""
    for volume in volumes:
        for source in volume.projected.sources if volume.projected else ():
            found += source.service_account_token is not None
            found += source.cluster_trust_bundle is not None
        if found > MOST and not exceeding:
            exceeding = volume.name
    if not exceeding:
        return None
    return exceeding, f"the pod has {found} sources of service account tokens and trust bundles, {MOST} are allowed"
