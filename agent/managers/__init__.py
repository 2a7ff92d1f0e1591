"""Who gets which processors, memory and devices: the managers that decide at a pod's admission and remember it."""
