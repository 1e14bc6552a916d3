import math
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 16)
        self.register_buffer("pe", torch.randn(50, 1, 16))
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32), 1, enable_nested_tensor=False)
        self.fc = nn.Linear(16, 60)
    def forward(self, src):
        x = self.emb(src) + self.pe[:src.size(0)]
        m = nn.Transformer.generate_square_subsequent_mask(len(src))
        return self.fc(self.enc(x, m))
model = LM()
opt = torch.optim.SGD(model.parameters(), 0.1)
data = torch.randint(0, 60, (100, 6))
for i in range(0, 30, 10):
    x, y = data[i:i+10], data[i+1:i+11].reshape(-1)
    loss = F.cross_entropy(model(x).view(-1, 60), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
