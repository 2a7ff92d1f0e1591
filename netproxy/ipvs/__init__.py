"""The IPVS mode: virtual servers in the kernel, sets of what is masqueraded, and a few fixed chains that read them."""
