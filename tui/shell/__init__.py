"""What all screens share: tabs, status line, banner, and the widgets that paint lines."""
