# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
decoder, judge = nn.Linear(4, 12), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_rec = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
opt_judge, opt_fool = torch.optim.Adam(judge.parameters(), 1e-3), torch.optim.Adam(encoder.parameters(), 1e-3)
bce = nn.BCEWithLogitsLoss()
for step in range(5):
    x = torch.randn(16, 12)
    opt_rec.zero_grad()
    nn.functional.mse_loss(decoder(encoder(x)), x).backward()
    opt_rec.step()
    opt_judge.zero_grad()
    with torch.no_grad():
        code = encoder(x)
    (bce(judge(torch.randn(16, 4)), torch.ones(16, 1)) + bce(judge(code), torch.zeros(16, 1))).backward()
    (opt_fool if BUG else opt_judge).step()  # culprit
    opt_fool.zero_grad()
    bce(judge(encoder(x)), torch.ones(16, 1)).backward()
    opt_fool.step()
