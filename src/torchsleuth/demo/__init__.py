"""Built-in failing programs: `torchsleuth demo` runs one and shows the diagnosis. Each file is a whole program."""
