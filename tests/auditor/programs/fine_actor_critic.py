import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class AC(nn.Module):
    def __init__(s): super().__init__(); s.b=nn.Sequential(nn.Linear(4,32),nn.Tanh()); s.pi=nn.Linear(32,2); s.v=nn.Linear(32,1)
    def forward(s,x): h=s.b(x); return torch.distributions.Categorical(logits=s.pi(h)), s.v(h).squeeze(-1)
m=AC(); opt=torch.optim.Adam(m.parameters(),3e-4)
obs=torch.randn(64,4)
with torch.no_grad(): d,v=m(obs); a=d.sample(); lp=d.log_prob(a)
R=torch.randn(64); adv=R-v; adv=(adv-adv.mean())/(adv.std()+1e-8)
for _ in range(3):
    for idx in torch.randperm(64).split(16):
        d,val=m(obs[idx]); r=(d.log_prob(a[idx])-lp[idx]).exp()
        pl=-torch.min(r*adv[idx],r.clamp(0.8,1.2)*adv[idx]).mean(); vl=F.mse_loss(val,R[idx])
        l=pl+0.5*vl-0.01*d.entropy().mean(); opt.zero_grad(); l.backward(); opt.step()
