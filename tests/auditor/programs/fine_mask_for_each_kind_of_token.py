"""Three tokens for each step of an episode, one after the other, and one mask, filled row by row, for all three of them."""

import torch
from torch import nn

B, T, D = 6, 5, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.returns, self.states, self.actions = nn.Linear(1, D), nn.Linear(4, D), nn.Linear(2, D)
        self.attention, self.head = nn.MultiheadAttention(D, 1, batch_first=True), nn.Linear(D, 2)

    def forward(self, returns, states, actions, mask):
        x = torch.stack((self.returns(returns), self.states(states), self.actions(actions)), 1).permute(0, 2, 1, 3).reshape(len(mask), -1, D)
        hidden = torch.stack((mask,) * 3, 1).permute(0, 2, 1).reshape(len(mask), -1) == 0
        later = torch.ones(3 * T, 3 * T, dtype=torch.bool).triu(1)
        x = x + self.attention(x, x, x, attn_mask=later, key_padding_mask=hidden, need_weights=False)[0]
        return self.head(x.reshape(len(mask), T, 3, D)[:, :, 1])


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
mask = torch.ones(B, T, dtype=torch.long)
for row in range(B):
    mask[row, 2 + row % 3 :] = 0
there = mask[..., None].float()
actions = torch.rand(B, T, 2) * there
predicted = model(torch.rand(B, T, 1) * there, torch.randn(B, T, 4) * there, actions, mask)
loss = (predicted - actions)[mask > 0].square().mean()
loss.backward()
optimizer.step()
