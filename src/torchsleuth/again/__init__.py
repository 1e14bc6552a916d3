"""Running the user's model again, without leaving a trace of it."""
