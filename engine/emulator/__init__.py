"""An emulated GPU that serves requests under any policy of the core, in virtual or wall-clock time."""
