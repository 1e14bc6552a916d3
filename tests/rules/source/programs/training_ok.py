import torch
import torch.nn.functional as F


def usual(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def cleared_after(model, loader, optimizer, scheduler):
    for x, y in loader:
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)


def step_of_the_turn_before(model, loader, optimizer):
    for x, y in loader:
        optimizer.step()
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()


def accumulated(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (F.mse_loss(model(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def by_hand(model, loader, optimizer):
    for x, y in loader:
        for p in model.parameters():
            p.grad = None
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def two_networks(D, G, loader, opt_d, opt_g):
    for real in loader:
        fake = G(real)
        opt_d.zero_grad()
        loss_d = D(real).mean() - D(fake).mean()
        loss_d.backward(retain_graph=True)
        opt_d.step()
        opt_g.zero_grad()
        loss_g = D(fake).mean()
        loss_g.backward()
        opt_g.step()


def both_first(model, x, y, optimizer):
    out = model(x)
    first, second = F.mse_loss(out, y), out.abs().mean()
    optimizer.zero_grad()
    first.backward(retain_graph=True)
    second.backward()
    optimizer.step()


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    return right


@torch.no_grad()
def validate(model, loader):
    return sum(model(x).sum().item() for x in loader)


def test_model(model):
    assert model(torch.ones(1, 3)).shape == (1, 2)


def new_leaf_in_every_turn(unet, latents, steps):
    for t in steps:
        x = latents.detach().clone()
        x.requires_grad = True
        opt = torch.optim.SGD([x], lr=0.1)
        unet(x, t).mean().backward()
        opt.step()
        latents = x.detach()
    return latents


def cleared_by_a_helper(loss_fn, optim, params, zero_grads):
    for _ in range(10):
        zero_grads(params)
        loss = loss_fn()
        loss.backward()
        optim.step()


def added_where_nothing_trains(losses, train=False):
    total = 0
    for loss in losses:
        total += loss
        if train:
            loss.backward()
    return total


def gan_step(disc, gen, real, criterion, noise):
    opt_d = torch.optim.Adam(disc.parameters())
    opt_g = torch.optim.Adam(gen.parameters())
    for x in real:
        fake = gen(noise)
        opt_d.zero_grad()
        d_real, d_fake = disc(x), disc(fake)
        loss_d = criterion(d_real, torch.ones_like(d_real)) + criterion(d_fake, torch.zeros_like(d_fake))
        loss_d.backward(retain_graph=True)
        opt_d.step()
        opt_g.zero_grad()
        again = disc(fake)  # through the network as it is now
        loss_g = criterion(again, torch.ones_like(again))
        loss_g.backward()
        opt_g.step()


def partly_silenced(model, teacher, batches, opt, criterion):
    for x, y in batches:
        with torch.no_grad():
            target = teacher(x)
        loss = criterion(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()


def optimised(values, steps):
    x = torch.tensor(values, requires_grad=True)
    opt = torch.optim.SGD([x], lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        loss = (x - 1).pow(2).sum()
        loss.backward()
        opt.step()
    return x
