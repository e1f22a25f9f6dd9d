"""The REST interface of the control plane."""

from pdmuxd.controlplane.api.app import build_admin_app

__all__ = ["build_admin_app"]
