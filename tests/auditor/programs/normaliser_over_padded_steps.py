# rule: padding-leak, exactly
# says: the state of a loop goes on through padded steps
BUG = True
import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def gold(self, scores, tags, mask):
        total = scores[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, scores.size(1)):
            total = total + mask[:, t] * (self.trans[tags[:, t - 1], tags[:, t]] + scores[:, t].gather(1, tags[:, t : t + 1]).squeeze(1))
        return total

    def forward(self, scores, tags, mask):
        alpha = scores[:, 0]
        for t in range(1, scores.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + self.trans + scores[:, t].unsqueeze(1), dim=1)  # culprit
            alpha = new if BUG else torch.where(mask[:, t].bool().unsqueeze(1), new, alpha)  # culprit
        return torch.logsumexp(alpha, dim=1) - self.gold(scores, tags, mask)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out, self.chain = nn.Embedding(50, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5), Chain(5)

    def forward(self, ids, mask, tags):
        return self.chain(self.out(self.rnn(self.emb(ids))[0]), tags, mask).mean()


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = (torch.arange(8) < torch.tensor([8, 6, 3, 7, 6])[:, None]).long()
    loss = model(torch.randint(1, 50, (5, 8)) * mask, mask.float(), torch.randint(0, 5, (5, 8)) * mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
