"""The daemon as seen from here: REST calls, and the event stream with its reconnections."""
