"""What tenants and keys may use: windows, budgets, and the wait for a turn."""
