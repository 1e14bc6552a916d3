"""Saved tensors of a torch that does not show them (2.6): the overwritten one is reached all the same, and refused as before."""

from __future__ import annotations

import pytest
import torch

from torchsleuth import env
from torchsleuth.probe.graph import saved_tensors
from torchsleuth.probe.tensors import fact_from_message


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a


@pytest.fixture
def old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for fact in ("saved_tensors_show_their_data", "saved_tensors_can_be_unpacked_one_by_one"):
        monkeypatch.setattr(env, fact, lambda: False)


@pytest.mark.parametrize("operation", [lambda w, h: w * h, lambda w, h: h.std(), Product.apply], ids=["two", "one", "custom"])
def test_the_overwritten_tensor_is_found_each_time_it_is_asked_for(old_torch: None, operation) -> None:
    w, h = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True).sin()
    result = operation(w, h)
    h += 1
    for _ in range(2):
        (stale,) = (saved for saved in saved_tensors(result.grad_fn) if saved.state == "stale")
        assert stale.tensor is not None and stale.tensor.data_ptr() == h.data_ptr()
        assert (stale.version_saved, stale.version_now) == (0, 1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \[torch.FloatTensor \[3\]\]"):
        result.sum().backward()


def test_what_was_not_overwritten_can_still_be_used(old_torch: None) -> None:
    w, h = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    result = Product.apply(w, h)
    assert [saved.state for saved in saved_tensors(result.grad_fn)] == ["fresh"]
    result.sum().backward()
    assert torch.equal(w.grad, h)


def test_a_tensor_that_nobody_can_look_at_is_described_as_torch_does() -> None:
    fact = fact_from_message("…: [torch.cuda.HalfTensor [4, 6]], which is output 0 of Add, is at version 1; …")
    assert (fact.shape, fact.dtype, fact.device) == ((4, 6), "float16", "cuda")
    assert fact_from_message("[torch.DoubleTensor []], which").shape == ()
