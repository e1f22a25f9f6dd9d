"""A session: everything that is to be measured in a limited time on one or two GPUs, one command."""
