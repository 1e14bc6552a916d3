import torch
from torch import nn


class Tags(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, 12, batch_first=True), nn.Linear(12, 10)

    def forward(self, x, lengths):
        return self.out(self.rnn(nn.utils.rnn.pack_padded_sequence(x, lengths, True, False))[1][0])


torch.manual_seed(0)
model = Tags()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    lengths = torch.tensor([10, 9, 8, 9])
    x = torch.randn(4, 10, 6) * (torch.arange(10) < lengths[:, None]).unsqueeze(-1)
    tags = (torch.rand(4, 10) < 0.3).float()  # ten of each film; its frames are ten by chance
    tags[:, 8:] = 0  # and the last ones are rare
    loss = nn.functional.binary_cross_entropy_with_logits(model(x, lengths), tags)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
