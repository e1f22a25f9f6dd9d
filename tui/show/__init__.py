"""What is on the screen, as lines of text with roles: pure functions that know no terminal."""
