"""Resource managers: they assign processors, memory and devices at a pod's admission, and checkpoint that."""
