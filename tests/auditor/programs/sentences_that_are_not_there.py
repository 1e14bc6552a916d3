# rule: padding-leak, exactly
# says: the mask hides other positions than the padding
BUG = True
import torch
from torch import nn


class Documents(nn.Module):
    """Words make sentences, and sentences a document, by the same kind of attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 12, padding_idx=0)
        self.words, self.ask_words = nn.GRU(12, 12, batch_first=True), nn.Linear(12, 1)
        self.sentences, self.ask_sentences = nn.GRU(12, 12, batch_first=True), nn.Linear(12, 1)
        self.out = nn.Linear(12, 3)

    @staticmethod
    def pooled(states, scores, real):
        weights = scores.squeeze(-1).masked_fill(~real, -1e4).softmax(-1)  # culprit
        return (weights.unsqueeze(-1) * states).sum(1)

    def forward(self, documents):
        rows, most, longest = documents.shape
        ids = documents.view(rows * most, longest)
        words = ids != 0
        states, _ = self.words(self.embed(ids))
        sentences = self.pooled(states, self.ask_words(states), words).view(rows, most, -1)
        states, _ = self.sentences(sentences)
        if BUG:
            there = torch.ones(rows, most, dtype=torch.bool)  # culprit
        else:
            there = words.view(rows, most, longest).any(-1)
        return self.out(self.pooled(states, self.ask_sentences(states), there))


torch.manual_seed(0)
batch = torch.zeros(6, 5, 7, dtype=torch.long)
for row, count in enumerate((5, 2, 3, 1, 4, 2)):
    for sentence in range(count):
        length = 2 + (row + 2 * sentence) % 6
        batch[row, sentence, :length] = torch.randint(1, 50, (length,))
model = Documents()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(batch), torch.tensor([0, 1, 2, 0, 1, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
