"""Deaths on the GPU that no forward rule explains."""
