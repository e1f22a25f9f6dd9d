"""The REST interface of the control plane."""
