"""NetworkPolicy: policies, pods and namespaces become one nftables table that filters pods' traffic."""
