"""What is wrong with a loss: its operands, their shapes, and the terms it is made of."""
