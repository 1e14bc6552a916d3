# rule: padding-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

device = "cuda"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(200, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, ids, mask):
        h = self.encoder(self.emb(ids), src_key_padding_mask=~mask)
        if BUG:
            return self.head(h.mean(dim=1))  # culprit
        return self.head((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


torch.manual_seed(0)
model = Classifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
for step in range(4):
    texts = [torch.randint(1, 200, (n,)) for n in (12, 7, 9, 12, 4, 10)]
    ids = pad_sequence(texts, batch_first=True).to(device)
    labels = torch.arange(6, device=device) % 4
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(ids, ids != 0), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(torch.isfinite(loss).item())
