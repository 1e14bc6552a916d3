# rule: padding-in-loss
# says: 6 padded positions count in the loss
BUG = True
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Translator(nn.Module):
    """Makes the inputs of its decoder of the labels, as models of `transformers` do."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=True, pad_token_id=0)
        self.table, self.out = nn.Embedding(40, 16), nn.Linear(16, 40)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)

    def forward(self, input_ids, labels):
        begun = torch.cat([torch.zeros_like(labels[:, :1]), labels[:, :-1]], 1)
        _, state = self.encoder(self.table(input_ids))
        states, _ = self.decoder(self.table(begun.masked_fill(begun == -100, 0)), state)
        return nn.functional.cross_entropy(self.out(states).flatten(0, 1), labels.flatten())


torch.manual_seed(0)
net = Translator()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    source = torch.randint(3, 40, (3, 6))
    labels = pad_sequence([torch.randint(3, 40, (n,)) for n in (8, 5, 5)], batch_first=True, padding_value=0 if BUG else -100)  # culprit
    loss = net(source, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
