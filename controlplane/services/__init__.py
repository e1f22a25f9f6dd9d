"""The control plane's services: what REST and the command line ask to be done."""
