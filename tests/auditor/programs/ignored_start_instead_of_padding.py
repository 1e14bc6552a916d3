# rule: padding-in-loss, exactly
# says: `ignore_index` is 0
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

START, PAD, END = 0, 1, 2


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, 30)

    def forward(self, source, lengths, target):
        _, state = self.encoder(pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False))
        return self.out(self.decoder(self.embed(target), state)[0])


torch.manual_seed(0)
sources = [torch.randint(3, 30, (n,)) for n in (3, 7, 5, 4, 6, 3)]
targets = [torch.cat([torch.tensor([START]), s.flip(0), torch.tensor([END])]) for s in sources]
model = Translator()
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss(ignore_index=START if BUG else PAD)  # culprit
for _ in range(2):
    source, target = (pad_sequence(rows, batch_first=True, padding_value=PAD) for rows in (sources, targets))
    logits = model(source, torch.tensor([len(s) for s in sources]), target[:, :-1])
    loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
