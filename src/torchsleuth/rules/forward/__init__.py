"""Crashes in the forward pass and in the loss: indexing, shapes, dtypes, devices."""
