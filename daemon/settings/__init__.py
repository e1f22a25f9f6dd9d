"""Everything that an operator can set before the daemon starts. docs/configuration.md lists the keys."""

from pdmuxd.daemon.settings.engine import EngineSection
from pdmuxd.daemon.settings.load import DeferredSettings, LoadedSettings, load_settings
from pdmuxd.daemon.settings.model import LogSection, Settings
from pdmuxd.daemon.settings.planes import AdminSection, DataSection, HttpSection

__all__ = [
    "AdminSection",
    "DataSection",
    "DeferredSettings",
    "EngineSection",
    "HttpSection",
    "LoadedSettings",
    "LogSection",
    "Settings",
    "load_settings",
]
