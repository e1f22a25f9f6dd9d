"""The emulated engine as a process: SGLang's HTTP endpoints before the emulated GPU, in wall-clock time."""
