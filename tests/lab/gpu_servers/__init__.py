"""What the plans share: models, servers of all kinds, the runner, the command lines' options."""
