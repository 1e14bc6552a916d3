"""One file per error family, found by walking this folder. See `torchsleuth/rule.py` for the contract."""
