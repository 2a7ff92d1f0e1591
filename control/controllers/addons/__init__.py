"""Addons: objects of files in a folder of the control plane, applied, pruned and kept (docs/addons.md)."""

from control.controllers.addons.controller import AddonController, AddonSettings

__all__ = ["AddonController", "AddonSettings"]
