"""Upstream's command lines of kube-apiserver, kube-controller-manager and kube-scheduler, as far as they mean the same here."""
