"""HTTP on the daemon's two listeners: what a connection may cost, and who goes when there are too many."""
