# rule: padding-leak, exactly
# says: hides the words and keeps the padding
BUG = True
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(90, 16, padding_idx=0), nn.Embedding(40, 16)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask):
        x = self.emb(input_ids) + self.pos(torch.arange(input_ids.size(1)))
        x = self.enc(x, src_key_padding_mask=attention_mask.bool() if BUG else attention_mask == 0)  # culprit
        return self.out(x[:, 0])


torch.manual_seed(0)
model = Classifier()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = (torch.arange(10) < torch.tensor([10, 6, 4, 9])[:, None]).long()
    loss = nn.functional.cross_entropy(model(input_ids=torch.randint(1, 90, (4, 10)) * mask, attention_mask=mask), torch.tensor([0, 1, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
