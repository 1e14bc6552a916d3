"""Fixes for failures in the forward pass and in the loss."""
