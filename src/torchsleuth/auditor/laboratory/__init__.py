"""Running a model again: one thing changed, the results compared, and no trace left."""
