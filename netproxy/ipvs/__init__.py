"""The IPVS mode: virtual servers in the kernel, sets that say who is masqueraded, a few fixed chains that read them."""
