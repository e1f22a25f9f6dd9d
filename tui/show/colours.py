"""Colours that mean the same in the console, in reports and on dashboards, as `#rrggbb`.

After Okabe and Ito's palette: orange and blue stay apart for all common kinds of colour blindness, and both
stand out on white and on near-black.
"""

from __future__ import annotations

PREFILL = "#e69f00"
DECODE = "#0a66b0"
IDLE = "#8c8c8c"
TARGET = "#808080"
"""Of the line at what was promised."""
GOOD, GOOD_ON_DARK = "#00694f", "#4cc9a4"
BAD, BAD_ON_DARK = "#a8240f", "#ff8a70"
"""As text, on light and on dark paper."""
