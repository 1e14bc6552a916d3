"""`check` beside `gradcheck`, in the same run: time as ratios, and memory on a large input.

    python -m bench.check            # times on [1, 32, 100], then a [64, 512, 768] input
    python -m bench.check --mutants  # the table of the mutation harness
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.autograd import gradcheck, gradgradcheck

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "checker"))

import right_functions as right  # noqa: E402

import torchsleuth  # noqa: E402

ROUNDS = 100


def inputs() -> dict[str, tuple]:
    def r(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    x = (1, 32, 100)
    return {
        "Sum": (r(*x),), "Softmax": (r(*x),), "Gelu": (r(*x),), "LogSumExp": (r(*x),), "AddBias": (r(*x), r(100)),
        "Scale": (r(*x), r(32, 100), 1.5), "LayerNorm": (r(*x), r(100), r(100), 1e-3), "Attention": (r(*x), r(*x), r(*x)),
    }  # fmt: skip


def times(calls: dict, rounds: int) -> dict[str, float]:
    """The shortest time of each call. They take turns, so that a busy machine slows all of them alike."""
    found = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 2):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn > 1 or rounds == 1:
                found[name] = min(found[name], time.process_time() - start)
    return found


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    print(f"processor time, best of {ROUNDS} in turns, one thread; inputs [1, 32, 100], float64")
    print(f"{'Function':10}{'gradcheck':>12}{'fast_mode':>12}{'+ gradgrad':>12}{'only_given':>12}{'check':>10}"
          f"{'default/check':>15}{'given/fast':>12}{'check/fast':>12}{'check/both':>12}")  # fmt: skip
    ratios = []
    for name, values in inputs().items():
        function = getattr(right, name)
        default = times({"": lambda: gradcheck(function.apply, values)}, 1)[""]
        found = times({
            "fast": lambda: gradcheck(function.apply, values, fast_mode=True),
            "second": lambda: gradgradcheck(function.apply, values, fast_mode=True),
            "given": lambda: torchsleuth.check(function, *values, only_given=True),
            "whole": lambda: torchsleuth.check(function, *values),
        }, ROUNDS)  # fmt: skip
        fast, given, whole = found["fast"], found["given"], found["whole"]
        both = fast + found["second"]
        ratios.append(whole / fast)
        print(f"{name:10}{default * 1e3:10.1f}ms{fast * 1e3:10.2f}ms{both * 1e3:10.2f}ms{given * 1e3:10.2f}ms{whole * 1e3:8.2f}ms"
              f"{default / whole:14.0f}x{given / fast:11.2f}x{whole / fast:11.2f}x{whole / both:11.2f}x")  # fmt: skip
    print(f"check / fast_mode: {min(ratios):.2f} to {max(ratios):.2f}, mean {sum(ratios) / len(ratios):.2f}")
    large()


def large() -> None:
    """Memory is linear: tensors of the input's size in float64, some of them at once, and no Jacobian."""
    print("\nlarge inputs, float32 given, checked in float64")
    for shape in ((64, 64, 768), (64, 512, 768)):
        x = torch.randn(*shape)
        for name, values in (("Relu", (x,)), ("AddBias", (x, torch.randn(768))), ("Softmax", (x,))):
            start = time.perf_counter()
            report = torchsleuth.check(getattr(right, name), *values)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{name:10}{list(shape)!s:>16}  {report.outcome.value}  {time.perf_counter() - start:6.1f} s   "
                  f"peak memory of the process {peak:.2f} GiB, input in float64 {x.numel() * 8 / 2**30:.2f} GiB")  # fmt: skip


if __name__ == "__main__":
    if "--mutants" in sys.argv:
        import test_mutants

        for part in range(4):
            test_mutants.test_mutants(part)
    else:
        main()
