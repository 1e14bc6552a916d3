import torch
import torch.nn.functional as F
from torch import nn, optim


def train(model, loader, epochs, scaler, clip):
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, epochs * len(loader))
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            running += loss.detach()
        print(epoch, running.item() / len(loader))


def accumulate(model, loader, opt, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y) / k
        loss.backward()
        if (i + 1) % k == 0:
            opt.step()
            opt.zero_grad()


def gan(G, D, opt_g, opt_d, loader):
    for real in loader:
        fake = G(torch.randn(real.size(0), 16))
        opt_d.zero_grad()
        d_loss = F.softplus(D(fake.detach())).mean() + F.softplus(-D(real)).mean()
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = F.softplus(-D(fake)).mean()
        g_loss.backward()
        opt_g.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
    return correct


def closure_based(model, x, y):
    opt = optim.LBFGS(model.parameters())

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(10):
        opt.step(closure)


def inner_loop(model, tasks, outer, lr):
    for x, y, x2, y2 in tasks:
        fast = dict(model.named_parameters())
        loss = F.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {k: p - lr * g for (k, p), g in zip(fast.items(), grads)}
        outer.zero_grad()
        F.mse_loss(torch.func.functional_call(model, fast, (x2,)), y2).backward()
        outer.step()


class Fitter:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def loss_of_batch(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        return F.mse_loss(self.model(x), y)

    def fit(self, loader):
        for x, y in loader:
            loss = self.loss_of_batch(x, y)
            loss.backward()
            self.optimizer.step()


def evaluate_frozen(model, data_loader, metrics, frozen):
    with frozen(model):
        for batch in data_loader:
            metrics(model(batch))
    return metrics


net = nn.Linear(3, 3)


def run_step(x, training):
    output = net(x).mean()
    if training:
        output.backward()
    return output


with torch.no_grad():
    run_step(torch.ones(3), False)


class NaturalGradient:
    def update(self, obs, actions, returns, advantages):
        dist, values = self.policy(obs)
        actor_loss = -(advantages * dist.log_prob(actions)).mean()
        critic_loss = F.mse_loss(values, returns)
        self.critic_optimizer.zero_grad()
        critic_loss.backward(retain_graph=True)
        self.critic_optimizer.step()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()


def evaluate_prepared(model, loader):
    return sum(model(x).sum().item() for x, _ in loader) + evaluate_inside(model, loader)


def evaluate_inside(model, loader):
    total = 0
    for x, y in loader:
        total += (model(x).argmax(1) == y).sum().item()
    return total


def epoch(model, loader, inference_context):
    with inference_context(model):
        return evaluate_inside(model, loader)
