"""Screen 2: the tenants, one tenant, and the edit of its targets."""
