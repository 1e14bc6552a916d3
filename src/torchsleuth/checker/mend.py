from __future__ import annotations


def mended(bench, method, evaluation, k, study):
    return None
