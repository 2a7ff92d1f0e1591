"""Device plugins: programs beside the agent that tell of devices and say how containers reach them (v1beta1)."""
