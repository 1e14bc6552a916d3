import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Flatten(), nn.Linear(16 * 16, 12))
        self.token, self.positions = nn.Embedding(60, 16), nn.Parameter(torch.randn(10, 16) * 0.01)
        self.transformer = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, dropout=0.0), 1, enable_nested_tensor=False)
        self.text_projection = nn.Parameter(torch.randn(16, 12) * 16**-0.5)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def encode_text(self, text):
        x = self.token(text) + self.positions
        mask = torch.full((10, 10), float("-inf")).triu_(1)
        x = self.transformer(x, mask=mask)
        return x[torch.arange(len(x)), text.argmax(dim=-1)] @ self.text_projection

    def forward(self, image, text):
        i = F.normalize(self.visual(image), dim=-1)
        t = F.normalize(self.encode_text(text), dim=-1)
        logits = self.logit_scale.exp() * i @ t.t()
        return logits, logits.t()


torch.manual_seed(0)
model = CLIP()
opt = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(2):
    text = torch.randint(1, 58, (6, 10))
    text[torch.arange(6), torch.tensor([9, 6, 4, 8, 5, 9])] = 59
    a, b = model(torch.rand(6, 3, 16, 16), text)
    labels = torch.arange(6)
    loss = (F.cross_entropy(a, labels) + F.cross_entropy(b, labels)) / 2
    opt.zero_grad(); loss.backward(); opt.step()
    model.logit_scale.data.clamp_(0, np.log(100))
print(loss.item())
