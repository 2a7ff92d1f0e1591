"""Tables of nf_tables, written with `nft`: for Services, network policies, source addresses and masquerading."""
