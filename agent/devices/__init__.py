"""Device plugins: programs beside the agent that report devices and how containers use them (v1beta1)."""
