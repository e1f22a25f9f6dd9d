"""The control plane: tenants, keys and SLOs; rows, repositories, services, REST routes."""
