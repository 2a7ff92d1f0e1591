"""Cgroups of pods: the tree, its shares and limits, and systemd's slices."""
