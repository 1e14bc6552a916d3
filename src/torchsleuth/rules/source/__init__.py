"""Rules about source text, one file each: what `torchsleuth lint` finds without running anything."""
