"""The measurements of engines on a GPU, a command each: `python tests/lab NAME`."""
