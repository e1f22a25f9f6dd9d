"""The emulated engine as a process: SGLang's HTTP endpoints in front of the emulated GPU, in wall-clock time."""
