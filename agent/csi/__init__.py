"""Volumes of CSI drivers, on the node's side: attach, stage, publish, expand."""
