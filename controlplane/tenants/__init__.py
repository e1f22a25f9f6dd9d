"""Tenants, their keys, targets, limits and token use: values, rows and repositories."""
