"""Rules about custom autograd Functions: each reads a `Trial` and words what it shows."""
