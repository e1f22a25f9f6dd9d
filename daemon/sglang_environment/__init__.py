"""SGLang's own virtual environment: what is installed there, and from where."""
