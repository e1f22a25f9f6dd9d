"""The Tenants screen and one tenant's."""
