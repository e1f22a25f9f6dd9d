"""The panels of the Overview."""
