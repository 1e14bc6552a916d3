import torch, math
from torch import nn
torch.manual_seed(0)
T=100; betas=torch.linspace(1e-4,0.02,T); ab=torch.cumprod(1-betas,0)
class Time(nn.Module):
    def __init__(s,d): super().__init__(); s.d=d; s.m=nn.Sequential(nn.Linear(d,d),nn.SiLU(),nn.Linear(d,d))
    def forward(s,t):
        f=torch.exp(-math.log(1e4)*torch.arange(s.d//2)/(s.d//2)); a=t.float()[:,None]*f[None]
        return s.m(torch.cat([a.sin(),a.cos()],-1))
class U(nn.Module):
    def __init__(s):
        super().__init__(); s.t=Time(16); s.i=nn.Conv2d(1,16,3,padding=1); s.d=nn.Conv2d(16,32,3,2,1); s.m=nn.Conv2d(32,32,3,padding=1); s.u=nn.ConvTranspose2d(32,16,4,2,1); s.o=nn.Conv2d(32,1,3,padding=1); s.g=nn.GroupNorm(4,32); s.p=nn.Linear(16,32)
        nn.init.zeros_(s.o.weight); nn.init.zeros_(s.o.bias)
    def forward(s,x,t):
        e=s.p(s.t(t)); a=s.i(x); h=torch.relu(s.g(s.d(a)))+e[:,:,None,None]; h=torch.relu(s.m(h)); h=s.u(h); return s.o(torch.cat([a,h],1))
m=U(); opt=torch.optim.AdamW(m.parameters(),2e-4); ema={k:v.clone() for k,v in m.state_dict().items()}
for _ in range(2):
    x=torch.randn(8,1,16,16); t=torch.randint(0,T,(8,)); n=torch.randn_like(x); a=ab[t][:,None,None,None]
    l=((m(a.sqrt()*x+(1-a).sqrt()*n,t)-n)**2).mean(); opt.zero_grad(); l.backward(); nn.utils.clip_grad_norm_(m.parameters(),1.); opt.step()
    for k,v in m.state_dict().items(): ema[k].lerp_(v,0.01)
