"""`pdmuxd bench`: whether pdmuxd pays on a user's own GPU, model and load."""
