"""NetworkPolicy: policies, pods and namespaces to one nftables table that judges what pods send and receive."""
