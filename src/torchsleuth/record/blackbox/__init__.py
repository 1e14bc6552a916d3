"""The black box: what index-consuming operations were given on the GPU, readable after the GPU's context has died.

`operations` says which operators are watched and what they allow, `memory` holds the pinned ring, `box` hooks the
two into torch's dispatcher. Nothing is patched and nothing synchronises. `guard` is the slow, blocking sibling that
refuses a bad index before the kernel runs.
"""
