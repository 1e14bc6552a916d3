"""Speed and memory, as ratios within one run. `python -m bench` runs what needs no GPU; `bench/gpu.py` the rest."""
