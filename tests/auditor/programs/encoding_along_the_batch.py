# rule: batch-position
BUG = True
import math
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)
    def forward(self, x):
        if BUG:
            x = x + self.pe[:x.size(0)]  # culprit
        else:
            x = x + self.pe[:x.size(1)].transpose(0, 1)
        return self.dropout(x)
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 16)
        self.pos = PositionalEncoding(16)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1, enable_nested_tensor=False)
        self.fc = nn.Linear(16, 4)
    def forward(self, ids):
        return self.fc(self.enc(self.pos(self.emb(ids) * 4)).mean(1))
model = Classifier()
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    loss = F.cross_entropy(model(torch.randint(0, 60, (6, 9))), torch.randint(0, 4, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
