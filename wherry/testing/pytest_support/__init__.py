"""Parts of the pytest plugin. They import the control plane only when a test uses a cluster."""
