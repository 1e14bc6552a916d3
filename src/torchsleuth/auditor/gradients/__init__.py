"""Where gradients are lost: parameters without one, zeros, and the layers that a model does not own."""
