"""Slow loops as tensor operations.

`context` collects what a function shows about its tensors; `lifted` is a value over all turns at once, which `lift`,
`indexing`, `operators`, `products`, `reductions` and `shapes` compute; `loops` reads a loop with `headers`, `branches` and
`totals`; `plan` and `emit` turn what it does into new statements, if `evidence` allows; `rewrite` makes edits of those, and
`region` two programs that a proof compares.
"""
