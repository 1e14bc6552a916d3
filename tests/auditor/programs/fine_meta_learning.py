import torch, torch.nn as nn
from torch.func import functional_call
torch.manual_seed(0)
net=nn.Sequential(nn.Linear(1,16),nn.Tanh(),nn.Linear(16,1)); opt=torch.optim.Adam(net.parameters(),1e-3)
for _ in range(2):
    total=0
    for task in range(3):
        a=torch.rand(1)*5; xs=torch.rand(10,1); ys=a*xs.sin(); p=dict(net.named_parameters())
        g=torch.autograd.grad(((functional_call(net,p,(xs,))-ys)**2).mean(),list(p.values()),create_graph=True)
        q={k:v-.01*gg for (k,v),gg in zip(p.items(),g)}
        xq=torch.rand(10,1); total=total+((functional_call(net,q,(xq,))-a*xq.sin())**2).mean()
    opt.zero_grad(); total.backward(); opt.step()
