"""Tables of iptables: chains as text, their shadow and the writer. The iptables and IPVS modes share them."""
