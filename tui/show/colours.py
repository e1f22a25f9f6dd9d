"""Colours that mean the same in the console, in reports and on dashboards, as `#rrggbb`.

After Okabe and Ito's palette: orange and blue stay apart for all common kinds of colour blindness, and both
stand out on white and on near-black.
"""

from __future__ import annotations

PREFILL = "#e69f00"
DECODE = "#0a66b0"
IDLE = "#8c8c8c"
GOOD = "#00694f"
BAD = "#a8240f"
