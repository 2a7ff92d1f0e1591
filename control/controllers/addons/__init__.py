"""Addons: objects of files in a folder of the control plane, applied, pruned and kept (docs/addons.md)."""
