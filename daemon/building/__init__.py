"""How the daemon's parts are made of the settings, stage by stage; each stage is made of those before it."""
