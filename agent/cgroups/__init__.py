"""Cgroups of pods: the tree, its shares and limits, and how systemd names them."""
