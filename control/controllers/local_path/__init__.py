"""The local-path provisioner: a claim becomes a folder on the node where its pod runs."""

from control.controllers.local_path.controller import LocalPathProvisioner

__all__ = ["LocalPathProvisioner"]
