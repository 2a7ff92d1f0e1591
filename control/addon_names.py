"""Names of the parts of the control plane that can be disabled as addons; no file of the addons' folder may have them."""

LOCAL_PATH, SERVICE_LOAD_BALANCER, METRICS, GATEWAY = "local-path", "service-load-balancer", "metrics", "gateway"
BUILT_IN = (LOCAL_PATH, SERVICE_LOAD_BALANCER, METRICS, GATEWAY)
