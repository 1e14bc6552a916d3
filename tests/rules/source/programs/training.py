import torch
import torch.nn.functional as F


def never_cleared(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()  # culprit: missing-zero-grad
        optimizer.step()


def cleared_too_early(model, loader, optimizer):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.zero_grad()  # culprit: backward-order
        optimizer.step()


def step_first(model, loader, opt):
    for x, y in loader:
        opt.zero_grad()  # culprit: backward-order
        loss = F.mse_loss(model(x), y)
        opt.step()
        loss.backward()


def two_losses(model, x, y, optimizer):
    out = model(x)
    first = F.mse_loss(out, y)
    second = out.abs().mean()
    optimizer.zero_grad()
    first.backward(retain_graph=True)
    optimizer.step()  # culprit: step-between-backwards
    second.backward()


def evaluate(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()  # culprit: eval-without-eval-mode
    return right


net = torch.nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    error = net(torch.randn(2, 3)).pow(2).mean()
    error.backward()  # culprit: missing-zero-grad
    opt.step()


def gan_step(disc, gen, real, criterion, noise):
    opt_d = torch.optim.Adam(disc.parameters())
    opt_g = torch.optim.Adam(gen.parameters())
    for x in real:
        fake = gen(noise)
        opt_d.zero_grad()
        d_real, d_fake = disc(x), None
        d_fake = disc(fake)
        loss_d = criterion(d_real, torch.ones_like(d_real)) + criterion(d_fake, torch.zeros_like(d_fake))
        loss_d.backward(retain_graph=True)
        opt_d.step()  # culprit: step-between-backwards
        opt_g.zero_grad()
        loss_g = criterion(d_fake, torch.ones_like(d_fake))
        loss_g.backward()
        opt_g.step()


def silenced(model, batches, opt, criterion):
    for x, y in batches:
        with torch.no_grad():  # culprit: no-grad-around-training
            out = model(x)
            loss = criterion(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()


def reinforce(opt, log_probs, returns):
    losses = []
    for lp, r in zip(log_probs, returns):
        losses.append(-lp * r)
    opt.zero_grad()
    loss = torch.tensor(losses, requires_grad=True).sum()  # culprit: loss-leaves-graph
    loss.backward()
    opt.step()


def decayed_in_place(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(0.9)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


def scaled_but_never_cleared(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()  # culprit: missing-zero-grad
        for p in model.parameters():
            p.grad.mul_(0.9)
        optimizer.step()
