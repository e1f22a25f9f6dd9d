"""Everything that depends on SGLang's internals: moving to another version is a change in here alone."""
