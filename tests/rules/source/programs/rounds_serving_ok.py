"""A layer of an engine that only runs models: nothing is recorded there, so what is written over is not missed."""

import torch
from torch import nn
from vllm.attention import Attention


class DecoderLayer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.attention = Attention(n)
        self.post_norm = nn.LayerNorm(n)

    def forward(self, hidden_states: torch.Tensor):
        residual = hidden_states
        normed = self.norm(hidden_states)
        residual += self.attention(normed)
        return self.post_norm(residual) + normed
