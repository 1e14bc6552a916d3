"""Programs whose values went wrong before an operation refused them: the first NaN is found in weights, in data, or by computing again."""

from forward_harness import Case

_POLICY = """\
import torch
from torch import nn
from torch.distributions import Categorical
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 5))
    def forward(self, seen, legal):
"""

CASES = [
    Case("a-row-that-is-masked-altogether", _POLICY + """\
        scores = self.net(seen).masked_fill(~legal, float("-inf"))  #! create
        return scores.softmax(-1)  #! create
policy = Policy()
legal = torch.ones(3, 5, dtype=torch.bool)
legal[1] = False
chances = policy(torch.randn(3, 6), legal)
torch.multinomial(chances, 1)  #! operand
""", "value-domain", ("`multinomial` takes finite weights", "1 of the 3 slices that it runs over hold only -inf", "at least one position is left")),
    Case("the-same-before-a-distribution", _POLICY + """\
        scores = self.net(seen)
        scores = torch.where(legal, scores, -torch.inf)  #! create
        return torch.softmax(scores, dim=1)  #! create
policy, seen = Policy(), torch.randn(3, 6)
legal = torch.zeros(3, 5, dtype=torch.bool)
def act(seen, legal):
    chances = policy(seen, legal)
    return Categorical(chances)  #! operand
act(seen, legal)
""", "distribution-constraint", ("`chances` holds NaN", "3 of the 3 slices", "Computed again, `softmax` is the first to make NaN")),
    Case("temperature-of-zero", """\
import torch
from torch import nn
words, out = nn.Embedding(9, 4), nn.Linear(4, 9)
def draw(last, temperature=0.0):
    scores = out(words(last)) / temperature  #! create
    chances = scores.softmax(-1)  #! create
    return torch.multinomial(chances, 1)  #! operand
with torch.no_grad():
    draw(torch.tensor([3, 1]))
""", "value-domain", ("`chances` holds NaN", "it divides by zero at 1 of 1 places", "Keep the denominator away from zero")),
    Case("weights-that-a-step-has-spoilt", """\
import torch
from torch import nn
from torch.distributions import Normal
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mean = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x):
        return Normal(self.mean(self.body(x).tanh()), 1.0)  #! operand
class Agent:
    def __init__(self):
        self.actor = Actor()
        self.optimizer = torch.optim.Adam(self.actor.parameters())
    def learn(self, x, returns):
        chance = self.actor(x).log_prob(torch.zeros(2)).sum(-1)
        loss = -(chance * (returns - returns.mean()) / returns.std()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()  #! create
agent = Agent()
for size in (8, 1, 8):
    agent.learn(torch.randn(size, 4), torch.randn(size))
""", "distribution-constraint", ("agent.actor.body.weight` holds NaN in 32 of its 32 elements", "Its gradient is not finite either", "torch.isfinite(loss)"), late=(9,)),
    Case("data-with-a-gap", """\
import torch
from torch import nn
table = torch.randn(12, 3)
table[7, 2] = float("nan")  #! create
labels = torch.randint(0, 2, (12,)).float()
model, criterion = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid(), nn.Flatten(0)), nn.BCELoss()
for k in range(0, 12, 4):
    x, y = table[k : k + 4], labels[k : k + 4]
    criterion(model(x), y)  #! operand
""", "loss-target", ("`table` holds NaN in 1 of its 36 elements, first at [7, 2]", "NaN is none"), late=(9,)),
    Case("a-variance-below-zero", """\
import torch
def features(x):
    mean = x.mean(1)
    spread = torch.sqrt((x * x).mean(1) - mean * mean - 1e-3)  #! create
    return torch.stack([mean, spread], 1)
def axes(f):
    f = f - f.mean(0)
    return torch.linalg.svd(f)  #! operand
axes(features(torch.full((6, 5), 0.5)))
""", "value-domain", ("`f` holds", "the root of a negative number is NaN"), late=(7, 8)),
    Case("scores-for-chances", """\
import torch
weights = torch.randn(6, 4) - 3
def hidden(visible):
    field = visible @ weights  #! create
    return torch.bernoulli(field)  #! operand
hidden(torch.ones(2, 6))
""", "value-domain", ("`field` holds -", "takes probabilities", "sigmoid")),
    Case("a-scale-that-is-no-scale", """\
import torch
from torch import nn
from torch.distributions import Normal
mean, spread = nn.Linear(3, 2), nn.Linear(3, 2)
nn.init.constant_(spread.bias, -9.0)
Normal(mean(torch.ones(1, 3)), spread(torch.ones(1, 3)))  #! operand
""", "distribution-constraint", ("`spread(torch.ones(1, 3))` holds values that are not greater than 0", "softplus(spread(torch.ones(1, 3)))")),
]
