import torch, torch.nn as nn
torch.manual_seed(0)
# seq2seq with teacher forcing, luong attention with mask, ignore_index
class E(nn.Module):
    def __init__(s): super().__init__(); s.e=nn.Embedding(20,8,padding_idx=0); s.r=nn.GRU(8,8,batch_first=True,bidirectional=True)
    def forward(s,x,n):
        p=nn.utils.rnn.pack_padded_sequence(s.e(x),n.cpu(),batch_first=True,enforce_sorted=False); o,h=s.r(p); o,_=nn.utils.rnn.pad_packed_sequence(o,batch_first=True,total_length=x.size(1)); return o,torch.cat([h[0],h[1]],1)
class D(nn.Module):
    def __init__(s): super().__init__(); s.e=nn.Embedding(20,8); s.c=nn.GRUCell(24,16); s.a=nn.Linear(16,16); s.o=nn.Linear(32,20)
    def forward(s,y,mem,h,mask):
        out=[]; ctx=torch.zeros(y.size(0),16)
        for t in range(y.size(1)):
            h=s.c(torch.cat([s.e(y[:,t]),ctx],1),h); w=(mem@s.a(h)[:,:,None]).squeeze(2).masked_fill(~mask,-1e9).softmax(1); ctx=(w[:,:,None]*mem).sum(1); out.append(s.o(torch.cat([h,ctx],1)))
        return torch.stack(out,1)
e,d=E(),D(); opt=torch.optim.Adam([*e.parameters(),*d.parameters()]); n=torch.tensor([6,4,5]); x=torch.randint(1,20,(3,6)); x[1,4:]=0; x[2,5:]=0; y=torch.randint(1,20,(3,7)); y[1,5:]=0
for _ in range(2):
    mem,h=e(x,n); o=d(y[:,:-1],mem,h,x!=0); l=nn.functional.cross_entropy(o.reshape(-1,20),y[:,1:].reshape(-1),ignore_index=0); opt.zero_grad(); l.backward(); opt.step()
