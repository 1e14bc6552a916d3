"""Runs a patched copy of the user's program in a subprocess and says what that showed, and what it did not."""
