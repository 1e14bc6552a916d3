"""One module per section of `Evidence`, named like it, each with `investigate(crash)`."""
