"""Recent traffic as numbers, kept in a ring on disk, and replays of it on the emulator."""
