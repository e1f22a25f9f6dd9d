"""Everything that an operator can set before the daemon starts. docs/configuration.md lists the keys."""

from pdmuxd.daemon.settings.engine import EngineSection
from pdmuxd.daemon.settings.load import DeferredSettings, LoadedSettings, load_settings
from pdmuxd.daemon.settings.model import (
    AdminSection,
    DataSection,
    LogSection,
    Settings,
)

__all__ = [
    "AdminSection",
    "DataSection",
    "DeferredSettings",
    "EngineSection",
    "LoadedSettings",
    "LogSection",
    "Settings",
    "load_settings",
]
