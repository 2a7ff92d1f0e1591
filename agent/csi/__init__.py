"""Volumes of CSI drivers: what a storage driver on this node is told to do for pods."""
