"""The experiments along a sequence: padding, masks, and what comes later."""
