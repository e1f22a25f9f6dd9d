"""The Textual console (a later slice)."""
