"""Changes to the user's source that remove a failure: one file per error family, found by walking this folder."""
