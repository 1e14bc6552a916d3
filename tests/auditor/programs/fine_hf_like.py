from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None


class MyBertForTokens(nn.Module):
    def __init__(self, vocab=60, d=16, labels=5):
        super().__init__()
        self.word, self.pos, self.ln = nn.Embedding(vocab, d, padding_idx=0), nn.Embedding(32, d), nn.LayerNorm(d)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 32, batch_first=True) for _ in range(2))
        self.classifier = nn.Linear(d, labels)
        self.num_labels = labels

    def forward(self, input_ids, attention_mask=None, labels=None):
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        h = self.ln(self.word(input_ids) + self.pos(torch.arange(input_ids.shape[1], device=input_ids.device)))
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=attention_mask == 0)
        logits = self.classifier(h)
        loss = None
        if labels is not None:
            loss = nn.CrossEntropyLoss()(logits.view(-1, self.num_labels), labels.view(-1))
        return Output(loss, logits)


class Collator:
    def __call__(self, features):
        n = max(len(f["input_ids"]) for f in features)
        pad = lambda k, v: torch.tensor([f[k] + [v] * (n - len(f[k])) for f in features])
        ids = pad("input_ids", 0)
        return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": pad("labels", -100)}


class Trainer:
    def __init__(self, model, data, collator, bs=4):
        self.model, self.data, self.collator, self.bs = model, data, collator, bs
        decay = {n for n, p in model.named_parameters() if p.dim() > 1}
        self.optimizer = torch.optim.AdamW([
            {"params": [p for n, p in model.named_parameters() if n in decay], "weight_decay": 0.01},
            {"params": [p for n, p in model.named_parameters() if n not in decay], "weight_decay": 0.0}], lr=5e-4)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 2))

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs).loss
        loss.backward()
        return loss.detach()

    def train(self):
        for i in range(0, len(self.data), self.bs):
            loss = self.training_step(self.collator(self.data[i : i + self.bs]))
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.model.zero_grad()
        return loss

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        batch = self.collator(self.data[:4])
        out = self.model(**batch)
        keep = batch["labels"] != -100
        return (out.logits.argmax(-1)[keep] == batch["labels"][keep]).float().mean().item()


torch.manual_seed(0)
data = []
for k in range(12):
    n = 4 + k % 7
    ids = torch.randint(1, 60, (n,)).tolist()
    data.append({"input_ids": ids, "labels": [i % 5 for i in ids]})
t = Trainer(MyBertForTokens(), data, Collator())
print(t.train().item(), t.evaluate())
