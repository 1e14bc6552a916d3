"""Loops as tensor operations: a symbolic reading of loop nests, free of torch.

`lifted` is a value over all turns of a loop, `lift` and `operators` make one of an expression, `loops` reads
statements, `plan` and `emit` turn what they do into new statements, `rewrite` those into edits, `region` into two programs that a proof compares.
"""
