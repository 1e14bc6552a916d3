"""A minimal reproduction: a few lines of plain torch that fail in the same way, run before they are written."""
