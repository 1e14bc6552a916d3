import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken=40, ninp=16, nhid=16):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder, self.rnn, self.decoder = nn.Embedding(ntoken, ninp), nn.LSTM(ninp, nhid, 2, dropout=0.2), nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        self.ntoken, self.nhid = ntoken, nhid

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return nn.functional.log_softmax(self.decoder(self.drop(output)).view(-1, self.ntoken), dim=1), hidden

    def init_hidden(self, bsz):
        w = next(self.parameters())
        return w.new_zeros(2, bsz, self.nhid), w.new_zeros(2, bsz, self.nhid)


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


torch.manual_seed(0)
data = torch.randint(0, 40, (400,)).view(8, -1).t().contiguous()
model, criterion, lr = RNNModel(), nn.NLLLoss(), 1.0
hidden = model.init_hidden(8)
for i in range(0, data.size(0) - 1, 10):
    n = min(10, len(data) - 1 - i)
    x, y = data[i : i + n], data[i + 1 : i + 1 + n].view(-1)
    model.zero_grad()
    hidden = repackage(hidden)
    out, hidden = model(x, hidden)
    loss = criterion(out, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
print(loss.item())
