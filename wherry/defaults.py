"""Defaults of `wherry up` for the API server, for settings that upstream leaves to administrators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

AUDIT_POLICY = Path(__file__).with_name("audit_policy.yaml")
"""Recorded unless /etc/wherry/audit-policy.yaml is there."""
AUDIT_LOG_MAX_AGE = 30 * 24 * 3600
"""Seconds that rotated files are kept, at most ten of 100 MiB each."""
EXTEND_TOKEN_EXPIRATION = False
"""Pods' tokens are valid for an hour and renewed by the agent; only clients that never read the file again need a year."""
ADMISSION: dict[str, dict[str, Any]] = {
    "EventRateLimit": {
        "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
        "kind": "Configuration",
        # Room for a burst of pods on a large cluster; events live an hour, and stay below a million.
        "limits": [
            {"type": "Server", "qps": 200, "burst": 10_000},
            {"type": "Namespace", "qps": 50, "burst": 5_000},
            {"type": "User", "qps": 50, "burst": 5_000},
        ],
    }
}
"""Admission plugins that are on beside upstream's, and their configuration unless /etc/wherry/admission.yaml has it."""
