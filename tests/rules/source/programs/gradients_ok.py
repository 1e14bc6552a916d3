import torch
import torch.nn.functional as F
from torch import nn

w = torch.ones(3, requires_grad=True)


def logged():
    loss = (w * 2).sum()
    loss.backward()
    print(loss.item())


def scaled():
    loss = (w * 2).sum()
    loss = loss / loss.item()
    loss.backward()


def target_network(model, frozen, x):
    loss = F.mse_loss(model(x), frozen(x).detach())
    loss.backward()


def hard_target(model, teacher, x):
    goal = teacher(x).argmax(dim=1)
    loss = F.cross_entropy(model(x), goal)
    loss.backward()


def float_target(predict, x, labels):
    loss = F.mse_loss(predict(x), labels.argmax(dim=1).float())
    loss.backward()


def straight_through():
    hard = (w > 0).float()
    soft = torch.sigmoid(w)
    out = hard + soft - soft.detach()
    out.sum().backward()


def chosen():
    best = w.argmax()
    w[best].backward()


def masked():
    loss = (w * (w > 0)).sum()
    loss.backward()


def inputs(x: torch.Tensor):
    probe = x.detach().clone().requires_grad_()
    (probe**2).sum().backward()
    return probe.grad


def fresh(values):
    return torch.tensor(values)


def either(x):
    if not isinstance(x, torch.Tensor):
        x = torch.tensor(x)
    return x.unsqueeze(0)


def update(lr):
    loss = (w**2).sum()
    loss.backward()
    with torch.no_grad():
        w.sub_(lr * w.grad)


def target_values():
    layer = nn.Linear(3, 1)
    with torch.no_grad():
        goal = layer(torch.ones(2, 3))
    loss = F.mse_loss(layer(torch.zeros(2, 3)), goal)
    loss.backward()


def outside():
    loss = (w**2).sum()
    with torch.no_grad():
        value = loss * 2
    loss.backward()
    return value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.names = ["a", "b"]
        self.teacher = [nn.Linear(4, 4)]
        self.pools = [nn.MaxPool2d(2), nn.ReLU()]
        self.weight = nn.Parameter(torch.ones(3))
        blocks = []
        for _ in range(2):
            blocks.append(nn.Linear(4, 4))
        self.body = nn.Sequential(*blocks)
        self.kept = []
        for i in range(2):
            layer = nn.Linear(4, 4)
            self.add_module(f"layer{i}", layer)
            self.kept.append(nn.Linear(4, 4))

    def forward(self, x):
        weight = self.weight * 0.9
        return x * weight


def train(model, loader, optimizer):
    total = 0.0
    history = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        history.append(loss.detach())
    return total, history


def summed(model, loader, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for x, y in loader:
        total += F.mse_loss(model(x), y)
    total.backward()
    optimizer.step()


def meta(model, tasks, optimizer):
    losses = []
    for x, y in tasks:
        losses.append(F.mse_loss(model(x), y))
    torch.stack(losses).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def frozen(model):
    for p in model.parameters():
        p.requires_grad = False
    for p in model.parameters():
        n = p.numel()
        p = p.detach() if n > 3 else p
        print(p)


def number_made_a_tensor(beta, log_p):
    beta = torch.tensor(beta, dtype=log_p.dtype)
    return log_p + torch.log(beta) + beta.unsqueeze(0)


def array_made_a_tensor(image):
    is_array = isinstance(image, np.ndarray)
    if is_array:
        image = torch.tensor(image)
    return image.float().unsqueeze(0)


def ids_made_a_tensor(extra, ids):
    extra = torch.atleast_2d(torch.tensor(extra, dtype=torch.long, device=ids.device))
    return torch.cat([ids, extra.expand(ids.size(0), 1)], dim=1)


def data_of_another_class(observation: torch.Tensor):
    if isinstance(observation, NonTensorData):
        observation = torch.tensor(observation.data)
    return observation


def given_as_a_number(mu: torch.Tensor = 0.0):
    return torch.tensor(mu)


class Rescaled(nn.Module):
    """A parameter made anew where that is done once, or on purpose."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Parameter(torch.ones(1))

    def prune(self, keep):
        self.scale = nn.Parameter(self.scale[keep])

    def forward(self, x):
        if self.scale.numel() != x.shape[-1]:
            self.scale = nn.Parameter(self.scale.expand(x.shape[-1]).clone())
        self.frozen = nn.Parameter(self.frozen.detach(), requires_grad=False)
        return x * self.scale * self.frozen


def start_of_a_loss(x, device):
    loss = x.new_zeros(1)
    loss.requires_grad_()
    other_loss = torch.tensor(0.0).to(device)
    other_loss.requires_grad_(True)
    return loss if x.numel() else other_loss


def loss_without_history(x, y):
    loss = (x - y).abs()
    loss.requires_grad_(False)
    return loss


def empty_loss(x):
    loss = x.new_zeros(1)
    loss.requires_grad_()
    return loss


class Blur(nn.Module):
    """A buffer where a tensor was given, and a plain pair of numbers where not."""

    def __init__(self, sigma):
        super().__init__()
        if isinstance(sigma, torch.Tensor):
            self.register_buffer("sigma", sigma, persistent=False)
        else:
            self.sigma = sigma

    def spread(self, device):
        if not isinstance(self.sigma, torch.Tensor):
            return torch.tensor(self.sigma, device=device)
        return self.sigma.to(device)


class ScaledByParameter(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, requires_grad=True))
        self.constant = torch.ones(width)
        self.offset = torch.zeros(width, requires_grad=True)
        self.probe = torch.zeros(width, requires_grad=True)
        self.unused = torch.zeros(width, requires_grad=True)

    def trained(self):
        return [self.scale, self.offset]  # handed on, to an optimizer, say

    def forward(self, x):
        y = x * self.scale + self.offset + self.constant + self.probe
        return y, torch.autograd.grad(y.sum(), self.probe, create_graph=True)[0]


class Attacked(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.delta = model, torch.zeros(3, 8, 8, requires_grad=True)
        self.noise = torch.zeros(3, 8, 8, requires_grad=True)

    def forward(self, x):
        return self.model(x + self.delta + self.noise)


def attack(attacked, x, y):
    optimizer = torch.optim.SGD([attacked.noise], lr=0.1)
    optimizer.zero_grad()
    F.cross_entropy(attacked(x), y).backward()
    optimizer.step()
