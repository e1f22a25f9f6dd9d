"""Put first on a server's path, so that its Pythons run `sitecustomize.py` here at their start."""
