"""What a step is seen to do: its calls, their places in the source, and whose code they are."""
