"""Recording: what ran, in order, at next to no cost. Only this folder writes it; nothing in it keeps a tensor alive.

Two layers. The *ring* (always on) holds line, start and return events of the program's code, each
with the autograd sequence number at that moment, so that any node of a graph can be led back to its
source. The *operation log* (the first seconds, or throughout with `--deep`) holds every torch call with
the versions, shapes and storages of its operands.
"""
