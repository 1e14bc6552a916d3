import torch, torch.nn as nn
torch.manual_seed(0)
class Obj(nn.Module):
    def __init__(s): super().__init__(); s.b=nn.Conv2d(3,8,3,padding=1); s.q=nn.Parameter(torch.randn(4,8)); s.d=nn.TransformerDecoderLayer(8,2,16,batch_first=True); s.c=nn.Linear(8,3); s.x=nn.Linear(8,4)
    def forward(s,im):
        f=s.b(im).flatten(2).transpose(1,2); h=s.d(s.q.expand(len(im),-1,-1),f); return s.c(h),s.x(h).sigmoid()
m=Obj(); opt=torch.optim.AdamW(m.parameters()); im=torch.randn(2,3,8,8); tb=torch.rand(2,4,4); tc=torch.randint(0,3,(2,4))
for _ in range(2):
    c,b=m(im); l=0
    for i in range(2):
        cost=torch.cdist(b[i],tb[i],p=1)-c[i].softmax(-1)[:,tc[i]]; j=cost.detach().argmin(1)
        l=l+nn.functional.l1_loss(b[i],tb[i][j])+nn.functional.cross_entropy(c[i],tc[i][j])
    opt.zero_grad(); l.backward(); opt.step()
