"""Reading source without importing or running it: the engine of `torchsleuth lint`. Free of torch.

`source` reads files, `interpret` follows names and tensors through a module, rules below `rules/source/`
judge what it sees, `vectorise` turns loops into tensor operations, `prove` runs both in a subprocess, and
`sweep` does all of it over a tree, in parallel and with a cache.
"""
