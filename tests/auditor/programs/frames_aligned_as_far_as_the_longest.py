# rule: padding-in-loss, exactly
# says: `input_lengths` is 15, the padded length, for each of the 6 rows
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Listener(nn.Module):
    """One step for every two frames."""

    def __init__(self):
        super().__init__()
        self.halve, self.run, self.out = nn.Conv1d(10, 12, 2, stride=2), nn.GRU(12, 12, batch_first=True), nn.Linear(12, 6)

    def forward(self, frames, counts):
        x = torch.relu(self.halve(frames.transpose(1, 2))).transpose(1, 2)
        steps = counts // 2
        states, _ = self.run(pack_padded_sequence(x, steps, batch_first=True, enforce_sorted=False))
        return self.out(pad_packed_sequence(states, batch_first=True)[0]).log_softmax(-1), steps


torch.manual_seed(0)
recordings = [torch.randn(n, 10) for n in (30, 22, 26, 20, 28, 24)]
words = torch.randint(1, 6, (6, 3))
model, align = Listener(), nn.CTCLoss()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    scores, steps = model(pad_sequence(recordings, batch_first=True), torch.tensor([len(r) for r in recordings]))
    if BUG:
        steps = torch.full((6,), scores.size(1))  # culprit
    loss = align(scores.transpose(0, 1), words, steps, torch.full((6,), 3))  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
