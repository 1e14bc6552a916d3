"""Crashes in autograd: in `backward()`, or in an in-place write that autograd refuses."""
