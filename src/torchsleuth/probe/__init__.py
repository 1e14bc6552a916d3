"""Live tensors, graphs and modules → facts. Only this folder reads tensors, and it never changes one."""
