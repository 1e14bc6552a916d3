"""Slow loops in many spellings, generated: what is computed x how the loop is written x what things are called.

`forms()` gives (name, source of one function) pairs that `lint` should rewrite and prove; `LEFT_ALONE` are
loops it must not touch.
"""

from __future__ import annotations

import itertools
import random
import textwrap

# What one turn computes from its row: (name, expression, shape of the result: "" one number, "row" like the row, "long").
ROWS = [
    ("sum", "{r}.sum()", ""),
    ("torch_sum", "torch.sum({r})", ""),
    ("mean", "{r}.mean()", ""),
    ("max", "{r}.max()", ""),
    ("min", "torch.min({r})", ""),
    ("norm", "torch.norm({r})", ""),
    ("squares", "({r} ** 2).sum()", ""),
    ("std", "{r}.std()", ""),
    ("abs_mean", "{r}.abs().mean()", ""),
    ("minmax", "({r} - {r}.min()) / ({r}.max() - {r}.min())", "row"),
    ("centre", "{r} - {r}.mean()", "row"),
    ("softmax", "torch.softmax({r}, dim=0)", "row"),
    ("clamp", "{r}.clamp(min=0.0, max=1.0)", "row"),
    ("relu", "torch.relu({r}) * 2 + 1", "row"),
    ("threshold", "torch.where({r} > 0.1, {r}, torch.zeros_like({r}))", "row"),
    ("mask_fill", "{r}.masked_fill({r} < 0, 0.0)", "row"),
]

STYLES = {
    "store": """
        def {f}({x}):
            {n} = {x}.shape[0]
            {o} = {alloc}
            for {i} in range({n}):
                {o}[{i}] = {body_index}
            return {o}
    """,
    "store_helper": """
        def {f}({x}):
            {n} = {x}.size(0)
            {o} = {alloc}
            for {i} in range({n}):
                {h} = {x}[{i}]
                {v} = {body_helper}
                {o}[{i}] = {v}
            return {o}
    """,
    "append": """
        def {f}({x}):
            {o} = []
            for {h} in {x}:
                {o}.append({body_helper})
            return torch.stack({o})
    """,
    "append_len": """
        def {f}({x}):
            {o} = []
            for {i} in range(len({x})):
                {v} = {body_index}
                {o}.append({v})
            {o} = torch.stack({o}, dim=0)
            return {o}
    """,
    "enumerate": """
        def {f}({x}: torch.Tensor):
            {o} = {alloc}
            for {i}, {h} in enumerate({x}):
                {o}[{i}] = {body_helper}
            return {o}
    """,
    "while": """
        def {f}({x}):
            {i} = 0
            {o} = []
            while {i} < {x}.size(0):
                {o}.append({body_index})
                {i} += 1
            return torch.stack({o})
    """,
    "comprehension": """
        def {f}({x}):
            return torch.stack([{body_helper} for {h} in {x}])
    """,
    "comprehension_range": """
        def {f}({x}):
            {o} = [{body_index} for {i} in range({x}.shape[0])]
            return torch.stack({o})
    """,
}

NAMES = [
    dict(x="x", o="out", i="i", n="n", h="row", v="value"),
    dict(x="features", o="result", i="b", n="batch_size", h="sample", v="s"),
    dict(x="scores", o="res", i="idx", n="num", h="vec", v="tmp"),
    dict(x="inputs", o="pooled", i="k", n="rows", h="item", v="r"),
]

# Whole functions: nests, conditions, gathers, running totals, layers.
WHOLE = {
    "largest_of_a_row": """
        def f(x, k):
            out = []
            for row in x:
                values, places = torch.topk(row, k)
                out.append(values)
            return torch.stack(out)
    """,
    "predicted_classes": """
        def f(scores):
            found = []
            for s in scores:
                found.append(s.argmax().item())
            return torch.tensor(found)
    """,
    "filter_along": """
        def f(x, kernel):
            n = x.shape[0] - kernel.shape[0] + 1
            out = torch.zeros(n)
            for i in range(n):
                out[i] = (x[i : i + kernel.shape[0]] * kernel).sum()
            return out
    """,
    "matrices": """
        def f(a, b):
            out = torch.zeros(a.size(0), a.size(1), b.size(2))
            for i in range(a.size(0)):
                out[i] = a[i] @ b[i]
            return out
    """,
    "float_of_numbers": """
        def f(x):
            total = 0.0
            for i in range(x.shape[0]):
                total += x[i].item()
            return total
    """,
    "row_sum_nested": """
        def f(x):
            n, m = x.shape
            out = torch.zeros(n)
            for i in range(n):
                s = 0
                for j in range(m):
                    s += x[i, j]
                out[i] = s / m
            return out
    """,
    "threshold_in_place": """
        def f(t, limit):
            rows, cols = t.shape
            for a in range(rows):
                for b in range(cols):
                    if t[a, b] < limit:
                        t[a, b] = 0
            return t
    """,
    "leaky": """
        def f(x):
            out = torch.empty(x.shape[0], x.shape[1])
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    if x[i, j] > 0:
                        out[i, j] = x[i, j]
                    else:
                        out[i, j] = 0.1 * x[i, j]
            return out
    """,
    "three_ways": """
        def f(x, lo, hi):
            out = torch.zeros_like(x)
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    v = x[i, j]
                    if v < lo:
                        out[i, j] = lo
                    elif v > hi:
                        out[i, j] = hi
                    else:
                        out[i, j] = v
            return out
    """,
    "python_max": """
        def f(x):
            n, m = x.size()
            out = torch.zeros(n, m)
            for i in range(n):
                for j in range(m):
                    out[i][j] = max(x[i][j], 0)
            return out
    """,
    "binary_mask": """
        def f(x, t):
            mask = torch.zeros_like(x)
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    mask[i, j] = 1.0 if x[i, j] > t else 0.0
            return mask
    """,
    "length_mask": """
        def f(scores, lengths):
            B, T = scores.shape
            mask = torch.zeros(B, T, dtype=torch.bool)
            for b in range(B):
                for t in range(T):
                    mask[b, t] = t < lengths[b]
            return mask
    """,
    "causal_mask": """
        def f(x):
            T = x.shape[0]
            m = torch.zeros(T, T)
            for i in range(T):
                for j in range(T):
                    if j <= i:
                        m[i, j] = 1
            return m
    """,
    "mask_fill": """
        def f(x, keep):
            out = x.clone()
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    if keep[i, j] == 0:
                        out[i, j] = -1e9
            return out
    """,
    "channels": """
        def f(image):
            channels, height, width = image.shape
            out = torch.empty_like(image)
            for c in range(channels):
                channel = image[c]
                low = channel.min()
                high = channel.max()
                out[c] = (channel - low) / (high - low)
            return out
    """,
    "columns": """
        def f(x):
            out = torch.zeros_like(x)
            for c in range(x.shape[1]):
                col = x[:, c]
                out[:, c] = (col - col.mean()) / (col.std() + 1e-5)
            return out
    """,
    "one_hot": """
        def f(labels, num_classes):
            n = labels.size(0)
            hot = torch.zeros(n, num_classes)
            for i in range(n):
                hot[i, labels[i]] = 1
            return hot
    """,
    "gather": """
        def f(x, idx):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = x[i, idx[i]]
            return out
    """,
    "gather_item": """
        def f(x, idx):
            picked = []
            for i in range(x.shape[0]):
                picked.append(x[i, idx[i].item()])
            return torch.stack(picked)
    """,
    "gather_loss": """
        def f(log_probs, target):
            total = 0.0
            for i in range(log_probs.shape[0]):
                total -= log_probs[i, target[i]]
            return total / log_probs.shape[0]
    """,
    "lookup": """
        def f(table, ids):
            B, T = ids.shape
            out = torch.zeros(B, T, table.shape[1])
            for b in range(B):
                for t in range(T):
                    out[b, t] = table[ids[b, t]]
            return out
    """,
    "scatter": """
        def f(values, idx, n):
            out = torch.zeros(n)
            for i in range(values.shape[0]):
                out[idx[i]] += values[i]
            return out
    """,
    "cumulative": """
        def f(x):
            out = torch.zeros_like(x)
            total = 0
            for i in range(x.shape[0]):
                total = total + x[i]
                out[i] = total
            return out
    """,
    "cumulative_previous": """
        def f(x):
            out = torch.zeros_like(x)
            out[0] = x[0]
            for i in range(1, x.shape[0]):
                out[i] = out[i - 1] + x[i]
            return out
    """,
    "cumulative_product": """
        def f(x):
            p = 1
            out = []
            for i in range(x.shape[0]):
                p = p * x[i]
                out.append(p)
            return torch.stack(out)
    """,
    "cumulative_prefix": """
        def f(x):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = x[: i + 1].sum()
            return out
    """,
    "distances": """
        def f(x, y):
            d = torch.zeros(x.shape[0], y.shape[0])
            for i in range(x.shape[0]):
                for j in range(y.shape[0]):
                    d[i, j] = torch.norm(x[i] - y[j])
            return d
    """,
    "distances_known": """
        def f(x, y):
            n, k = x.shape
            m, k2 = y.shape
            d = torch.zeros(n, m)
            for i in range(n):
                for j in range(m):
                    d[i, j] = torch.norm(x[i] - y[j])
            return d
    """,
    "squared_distances": """
        def f(x):
            n = x.shape[0]
            d = torch.zeros(n, n)
            for i in range(n):
                for j in range(n):
                    d[i, j] = ((x[i] - x[j]) ** 2).sum()
            return d
    """,
    "dots": """
        def f(q, k):
            s = torch.zeros(len(q), len(k))
            for i in range(len(q)):
                for j in range(len(k)):
                    s[i, j] = torch.dot(q[i], k[j])
            return s
    """,
    "dots_lists": """
        def f(q, k):
            rows = []
            for i in range(q.shape[0]):
                row = []
                for j in range(k.shape[0]):
                    row.append((q[i] * k[j]).sum())
                rows.append(torch.stack(row))
            return torch.stack(rows)
    """,
    "paired_dots": """
        def f(a, b):
            out = []
            for u, v in zip(a, b):
                out.append((u * v).sum())
            return torch.stack(out)
    """,
    "cosine": """
        def f(q, k):
            out = torch.zeros(q.shape[0], k.shape[0])
            for i, qi in enumerate(q):
                for j, kj in enumerate(k):
                    out[i, j] = F.cosine_similarity(qi, kj, dim=0)
            return out
    """,
    "matrix_product": """
        def f(a, b):
            n, k = a.shape
            k2, m = b.shape
            c = torch.zeros(n, m)
            for i in range(n):
                for j in range(m):
                    for l in range(k):
                        c[i, j] += a[i, l] * b[l, j]
            return c
    """,
    "linear": """
        def f(x, W, b):
            n = x.shape[0]
            out = torch.zeros(n, W.shape[0])
            for i in range(n):
                out[i] = W @ x[i] + b
            return out
    """,
    "pool": """
        def f(x):
            B, T, D = x.shape
            out = torch.zeros(B, D)
            for b in range(B):
                for t in range(T):
                    out[b] += x[b, t]
            return out / T
    """,
    "time_mean": """
        def f(x):
            B, T, D = x.shape
            pooled = []
            for b in range(B):
                pooled.append(x[b].mean(dim=0))
            return torch.stack(pooled)
    """,
    "differences": """
        def f(x):
            out = torch.zeros(x.size(0) - 1)
            for i in range(x.size(0) - 1):
                out[i] = x[i + 1] - x[i]
            return out
    """,
    "count": """
        def f(x, t):
            count = 0
            for i in range(x.shape[0]):
                if x[i] > t:
                    count += 1
            return count
    """,
    "total": """
        def f(x):
            s = 0.0
            i = 0
            while i < x.shape[0]:
                s += (x[i] ** 2).sum()
                i += 1
            return s
    """,
    "items": """
        def f(x):
            vals = []
            for i in range(len(x)):
                vals.append(x[i].mean().item())
            return torch.tensor(vals)
    """,
    "argmax": """
        def f(x):
            out = torch.zeros(x.shape[0], dtype=torch.long)
            for i in range(x.shape[0]):
                out[i] = x[i].argmax()
            return out
    """,
    "positions": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 4)

            def forward(self, x, mask):
                B, T, D = x.shape
                outputs = []
                for t in range(T):
                    h = x[:, t, :] * mask[:, t].unsqueeze(-1)
                    outputs.append(self.linear(h))
                return torch.stack(outputs, dim=1)
    """,
    "positions_layers": """
        class Net(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.norm = nn.LayerNorm(d)
                self.fc = nn.Linear(d, d)
                self.act = nn.ReLU()

            def forward(self, seq):
                B, T, D = seq.shape
                out = torch.zeros(B, T, 5)
                for b in range(B):
                    for t in range(T):
                        out[b, t] = self.act(self.fc(self.norm(seq[b, t])))
                return out
    """,
    "grown_by_cat": """
        def f(x):
            out = torch.tensor([])
            for row in x:
                out = torch.cat([out, row.sum().unsqueeze(0)])
            return out
    """,
    "grown_by_cat_rows": """
        def f(x):
            n, d = x.shape
            res = torch.empty(0)
            for i in range(n):
                scaled = x[i] * 2
                res = torch.cat((res, scaled.mean().view(-1)), dim=0)
            return res
    """,
    "counts": """
        def f(x):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = (x[i] > 0).sum()
            return out
    """,
    "accuracy": """
        def f(pred, y):
            correct = 0
            for i in range(pred.size(0)):
                if pred[i].argmax() == y[i]:
                    correct += 1
            return correct / pred.size(0)
    """,
    "grand_total": """
        def f(x):
            total = 0
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    total += x[i, j]
            return total
    """,
    "log_softmax": """
        def f(x):
            B, C = x.shape
            out = torch.zeros(B, C)
            for i in range(B):
                m = x[i].max()
                lse = torch.log(torch.exp(x[i] - m).sum()) + m
                out[i] = x[i] - lse
            return out
    """,
    "nll": """
        def f(logp, target):
            n = logp.shape[0]
            loss = torch.zeros(n)
            for i in range(n):
                loss[i] = -logp[i][target[i]]
            return loss.mean()
    """,
    "two_lists": """
        def f(x):
            vals = []
            idxs = []
            for i in range(x.shape[0]):
                vals.append(x[i].max())
                idxs.append(x[i].argmax())
            return torch.stack(vals), torch.stack(idxs)
    """,
    "bag_of_words": """
        def f(emb, ids):
            out = []
            for row in ids:
                out.append(emb[row].mean(dim=0))
            return torch.stack(out)
    """,
    "gates": """
        def f(x, g):
            B, T, D = x.shape
            outs = []
            for t in range(T):
                outs.append(torch.sigmoid(g[:, t]).unsqueeze(1) * x[:, t])
            return torch.stack(outs, dim=1)
    """,
    "normalise_rows": """
        def f(x):
            n, d = x.shape
            out = torch.zeros((n, d), device=x.device, dtype=x.dtype)
            for i in range(n):
                out[i, :] = x[i, :] / x[i, :].norm()
            return out
    """,
    "zip_and_enumerate": """
        def f(q, k):
            res = []
            for i, (a, b) in enumerate(zip(q, k)):
                res.append(torch.dot(a, b) * i)
            return torch.stack(res)
    """,
    "attention": """
        class Attn(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.q = nn.Linear(d, d)
                self.k = nn.Linear(d, d)
                self.v = nn.Linear(d, d)

            def forward(self, x):
                B, T, D = x.shape
                q, k, v = self.q(x), self.k(x), self.v(x)
                out = torch.zeros(B, T, D)
                for b in range(B):
                    s = q[b] @ k[b].transpose(0, 1) / D ** 0.5
                    w = torch.softmax(s, dim=-1)
                    out[b] = w @ v[b]
                return out
    """,
    "similarities": """
        def f(x):
            n = len(x)
            sim = torch.zeros(n, n)
            for i in range(n):
                for j in range(n):
                    sim[i, j] = (x[i] * x[j]).sum() / (x[i].norm() * x[j].norm())
            return sim
    """,
    "variance": """
        def f(x):
            n, d = x.shape
            res = torch.zeros(d)
            for j in range(d):
                col = x[:, j]
                mu = col.mean()
                res[j] = ((col - mu) ** 2).sum() / (n - 1)
            return res
    """,
    "last_steps": """
        def f(h, lengths):
            B, T, D = h.shape
            last = []
            for b in range(B):
                last.append(h[b, lengths[b] - 1])
            return torch.stack(last, dim=0)
    """,
    "relative": """
        def f(T):
            m = torch.zeros(T, T)
            for i in range(T):
                for j in range(T):
                    m[i, j] = i - j
            return m
    """,
    "value_and_place": """
        def f(x):
            best = torch.zeros(x.shape[0])
            where = torch.zeros(x.shape[0], dtype=torch.long)
            for i in range(x.shape[0]):
                v, j = x[i].max(dim=0)
                best[i] = v
                where[i] = j
            return best, where
    """,
    "entropy": """
        def f(p):
            ent = torch.zeros(p.shape[0])
            for i in range(p.shape[0]):
                ent[i] = (p[i] * torch.sigmoid(p[i])).sum()
            return ent
    """,
    "channel_mean": """
        def f(img):
            B, C, H, W = img.shape
            m = torch.zeros(B, C)
            for b in range(B):
                for c in range(C):
                    m[b, c] = img[b, c].mean()
            return m
    """,
    "running_mean": """
        def f(x):
            out = torch.zeros_like(x)
            total = 0.0
            for i in range(len(x)):
                total = total + x[i]
                out[i] = total / (i + 1)
            return out
    """,
    "unit_rows": """
        def f(x):
            rows = [x[i] / (x[i].norm() + 1e-12) for i in range(x.shape[0])]
            return torch.stack(rows, dim=0)
    """,
    "distances_by_helper": """
        def f(a, b):
            n, m = a.size(0), b.size(0)
            d = torch.zeros(n, m)
            for i in range(n):
                for j in range(m):
                    diff = a[i] - b[j]
                    d[i, j] = torch.sqrt((diff ** 2).sum())
            return d
    """,
    "weighted_by_hand": """
        def f(x, w):
            res = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                s = 0
                for j in range(x.shape[1]):
                    s = s + x[i, j] * w[j]
                res[i] = s
            return res
    """,
    "loss_of_rows": """
        def f(pred, target):
            return sum(F.mse_loss(pred[i], target[i]) for i in range(pred.size(0))) / pred.size(0)
    """,
    "factorials": """
        def f(x, n):
            table = torch.zeros(n + 1, dtype=torch.float64)
            table[0] = 1.0
            for i in range(1, n + 1):
                table[i] = table[i - 1] * i
            return table
    """,
    "less_the_mean": """
        def f(x, mean):
            out = torch.zeros_like(x)
            for i in range(x.shape[0]):
                out[i] = x[i] - mean
            return out
    """,
    "joined_rows": """
        def f(x: torch.Tensor):
            return torch.cat([(row - 1).view(-1) for row in x], dim=0)
    """,
    "taylor": """
        def f(x, n=6):
            fn = torch.ones_like(x)
            denominator = 1.0
            for i in range(1, n + 1):
                denominator *= i
                fn = fn + x.pow(i) / denominator
            return fn
    """,
    "turns_present": """
        def f(turn_ids: torch.Tensor, n: int):
            B, T = turn_ids.shape
            mask = torch.zeros(B, n)
            for t in range(n):
                mask[:, t] = (turn_ids == t).any(dim=1).float()
            return mask
    """,
    "part_of_a_batch": """
        def f(ids: torch.Tensor, j: int, n: int, k: int):
            return torch.stack([ids[j][i, :k] for i in range(n)])
    """,
    "error_per_candidate": """
        def f(w: torch.Tensor, scale: torch.Tensor):
            N, C = scale.shape
            rows, columns = w.shape
            err = torch.empty(N, 1, columns)
            for i in range(N):
                err[i] = torch.abs(w - w * scale[i, 0]).mean(axis=0, keepdim=True)
            return err
    """,
    "overlap_per_class": """
        def f(pred: torch.Tensor, target: torch.Tensor, smooth: float = 1.0):
            total = 0.0
            for c in range(pred.shape[1]):
                p = pred[:, c].reshape(-1)
                t = target[:, c].reshape(-1)
                total += 1 - (2 * (p * t).sum() + smooth) / (p.sum() + t.sum() + smooth)
            return total / pred.shape[1]
    """,
    "scores_of_one_query": """
        def f(q: torch.Tensor, k: torch.Tensor):
            b, t, d = q.shape
            scores = torch.zeros(b, t, t)
            for i in range(t):
                for j in range(t):
                    scores[:, i, j] = (q[:, i] * k[:, j]).sum(-1) / d**0.5
            return scores
    """,
    "confusion_matrix": """
        def f(pred: torch.Tensor, target: torch.Tensor, k: int):
            cm = torch.zeros(k, k, dtype=torch.long)
            for i in range(len(pred)):
                cm[target[i].item(), pred[i].item()] += 1
            return cm
    """,
    "histogram": """
        def f(x: torch.Tensor, bins: int):
            h = torch.zeros(bins)
            for v in x:
                h[int(v)] += 1
            return h
    """,
    "messages": """
        def f(x: torch.Tensor, edge_index: torch.Tensor):
            agg = torch.zeros_like(x)
            for e in range(edge_index.shape[1]):
                src, dst = edge_index[0, e], edge_index[1, e]
                agg[dst] += x[src]
            return agg
    """,
    "edges": """
        def f(pos: torch.Tensor, edges: torch.Tensor):
            out = []
            for i, j in edges:
                out.append(pos[i] - pos[j])
            return torch.stack(out)
    """,
    "boxes": """
        def f(b: torch.Tensor):
            out = torch.empty_like(b)
            for i in range(len(b)):
                cx, cy, w, h = b[i]
                out[i, 0] = cx - w / 2
                out[i, 1] = cy - h / 2
                out[i, 2] = cx + w / 2
                out[i, 3] = cy + h / 2
            return out
    """,
    "one_step_ahead": """
        def f(r: torch.Tensor, v: torch.Tensor, gamma):
            T = r.shape[0]
            d = torch.zeros(T)
            for t in range(T):
                d[t] = r[t] + gamma * v[t + 1] - v[t]
            return d
    """,
    "numbers_added_up": """
        def f(x: torch.Tensor):
            total = 0.0
            for i in range(x.shape[0]):
                total += x[i].mean().item()
            return total / x.shape[0]
    """,
    "negated_sum": """
        def f(x: torch.Tensor):
            total = 0.0
            for i in range(x.shape[0]):
                total += -x[i].sum()
            return total
    """,
    "negated_product": """
        def f(x: torch.Tensor, y: torch.Tensor):
            n, k = x.shape
            k2, m = y.shape
            out = torch.zeros(n, m)
            for i in range(n):
                for j in range(m):
                    s = 0
                    for l in range(k):
                        s += -(x[i, l] * y[l, j])
                    out[i, j] = s
            return out
    """,
    "moving_average": """
        def f(x: torch.Tensor, k: int):
            out = torch.zeros(x.shape[0] - k + 1)
            for i in range(x.shape[0] - k + 1):
                out[i] = x[i : i + k].mean()
            return out
    """,
    "convolution": """
        def f(img, kernel):
            H, W = img.shape
            kh, kw = kernel.shape
            out = torch.zeros(H - kh + 1, W - kw + 1)
            for i in range(H - kh + 1):
                for j in range(W - kw + 1):
                    out[i, j] = (img[i : i + kh, j : j + kw] * kernel).sum()
            return out
    """,
    "pooling": """
        def f(x: torch.Tensor, k: int):
            B, C, H, W = x.shape
            out = torch.zeros(B, C, H // k, W // k)
            for i in range(H // k):
                for j in range(W // k):
                    out[:, :, i, j] = x[:, :, i * k : (i + 1) * k, j * k : (j + 1) * k].amax(dim=(2, 3))
            return out
    """,
    "lags_and_horizons": """
        def f(series: torch.Tensor, lag: int, horizon: int):
            count = len(series) - lag - horizon + 1
            xs, ys = [], []
            for i in range(count):
                xs.append(series[i : i + lag])
                ys.append(series[i + lag : i + lag + horizon])
            return torch.stack(xs), torch.stack(ys)
    """,
    "pairs_once": """
        def f(x: torch.Tensor):
            total, count = 0.0, 0
            for i in range(len(x)):
                for j in range(i + 1, len(x)):
                    total += torch.norm(x[i] - x[j])
                    count += 1
            return total / count
    """,
    "below_the_diagonal": """
        def f(x: torch.Tensor):
            n = x.shape[0]
            m = torch.zeros(n, n)
            for i in range(n):
                for j in range(i):
                    m[i, j] = x[i, j] * 2
            return m
    """,
    "bilinear": """
        class Bilinear(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.W = nn.Parameter(torch.randn(d, d))

            def forward(self, a: torch.Tensor, b: torch.Tensor):
                B, D = a.shape
                s = torch.empty(B)
                for i in range(B):
                    s[i] = a[i] @ self.W @ b[i]
                return s
    """,
    "outer_products": """
        def f(u: torch.Tensor, v: torch.Tensor):
            return torch.stack([torch.outer(u[i], v[i]) for i in range(u.shape[0])])
    """,
    "traces": """
        def f(x):
            B, N, M = x.shape
            return torch.stack([torch.trace(x[b]) for b in range(B)])
    """,
    "determinants": """
        def f(A: torch.Tensor):
            d = torch.zeros(A.shape[0])
            for i in range(A.shape[0]):
                d[i] = torch.det(A[i])
            return d
    """,
}

LEFT_ALONE = {
    "recurrence": """
        def f(x, h):
            out = []
            for t in range(x.shape[0]):
                h = torch.tanh(h + x[t])
                out.append(h)
            return torch.stack(out)
    """,
    "smoothing": """
        def f(x):
            out = torch.zeros_like(x)
            out[0] = x[0]
            for t in range(1, x.shape[0]):
                out[t] = 0.9 * out[t - 1] + 0.1 * x[t]
            return out
    """,
    "cell": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.GRUCell(4, 4)

            def forward(self, x, h):
                out = []
                for t in range(x.shape[1]):
                    h = self.cell(x[:, t], h)
                    out.append(h)
                return torch.stack(out, dim=1)
    """,
    "list_of_tensors": """
        def f(tensors):
            return torch.stack([t.sum() for t in tensors])
    """,
    "annotated_list": """
        def f(x: list[torch.Tensor]):
            out = []
            for row in x:
                out.append(row.mean())
            return torch.stack(out)
    """,
    "built_list": """
        def f(a, b):
            parts = [a, b]
            return torch.stack([p.sum() for p in parts])
    """,
    "sizes": """
        def f(shape):
            numel = 1
            for s in shape:
                numel *= s
            return torch.zeros(numel)
    """,
    "layers": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

            def forward(self, x):
                outs = []
                for layer in self.layers:
                    outs.append(layer(x))
                return torch.stack(outs)
    """,
    "dropout": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.drop = nn.Dropout(0.5)

            def forward(self, x):
                B, T, D = x.shape
                return torch.stack([self.drop(x[:, t]) for t in range(T)], dim=1)
    """,
    "batch_norm": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.bn = nn.BatchNorm1d(4)

            def forward(self, x):
                B, T, D = x.shape
                return torch.stack([self.bn(x[:, t]) for t in range(T)], dim=1)
    """,
    "last_write_wins": """
        def f(values, idx, n):
            out = torch.zeros(n)
            for i in range(values.shape[0]):
                out[idx[i]] = values[i]
            return out
    """,
    "ragged": """
        def f(x, lengths):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = x[i, : lengths[i]].mean()
            return out
    """,
    "early_exit": """
        def f(x):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                if x[i].sum() > 3:
                    break
                out[i] = x[i].sum()
            return out
    """,
    "side_effect": """
        def f(x):
            out = []
            for i in range(x.shape[0]):
                print(i)
                out.append(x[i].sum())
            return torch.stack(out)
    """,
    "used_after": """
        def f(x):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                row = x[i]
                out[i] = row.sum()
            return out, row
    """,
    "list_itself_returned": """
        def f(x):
            out = []
            for i in range(x.shape[0]):
                out.append(x[i].sum())
            return out
    """,
    "numpy": """
        import numpy as np

        def f(x):
            a = np.zeros(len(x))
            for i in range(len(x)):
                a[i] = x[i].sum()
            return torch.from_numpy(a)
    """,
    "neighbour_written": """
        def f(x):
            for i in range(1, x.shape[0]):
                x[i] = x[i] + x[i - 1] * 0.5
            return x
    """,
    "weights_or_rows": """
        def f(x, w):
            out = torch.zeros_like(x)
            for i in range(x.shape[0]):
                out[i] = x[i] * w[i]
            return out
    """,
    "mask_rows": """
        def f(x, mask):
            picked = []
            for i in range(x.shape[0]):
                picked.append(x[i][mask[i]])
            return torch.cat(picked)
    """,
    "cluster_means": """
        def f(data: torch.Tensor, labels: torch.Tensor, k: int):
            centres = torch.zeros(k, data.shape[1])
            for i in range(k):
                members = data[labels == i, :]
                centres[i] = members.mean(dim=0)
            return centres
    """,
    "cluster_sums_stacked": """
        def f(counts: torch.Tensor, labels: torch.Tensor):
            return torch.stack([counts[labels == c].sum(0) for c in range(10)])
    """,
    "cluster_where_any": """
        def f(counts: torch.Tensor, assignment: torch.Tensor):
            scores = counts.new_zeros((counts.shape[0], 10))
            for label in range(10):
                chosen = assignment == label
                if chosen.any():
                    scores[:, label] = counts[:, chosen].mean(1)
            return scores
    """,
    "order_of_groups": """
        def f(indices: torch.Tensor, groups: torch.Tensor, n: int):
            return torch.cat([indices[groups == i] for i in range(n)])
    """,
    "positions_of_ones": """
        def f(masks: torch.Tensor):
            return torch.stack([torch.where(mask)[0] for mask in masks])
    """,
    "collate": """
        def collate(batch):
            x = torch.stack([item[0] for item in batch])
            y = torch.tensor([item[1] for item in batch])
            return x, y
    """,
    "flattened_pieces": """
        def f(sequence):
            return torch.cat([p.reshape(-1) for p in sequence]) if len(sequence) > 0 else torch.tensor([])
    """,
    "tensor_or_pieces": """
        def f(x):
            if torch.is_tensor(x):
                return torch.sqrt((x ** 2.0).sum() / x.numel())
            return torch.sqrt(sum((part ** 2.0).sum() for part in x) / sum(part.numel() for part in x))
    """,
    "padded_frames": """
        def f(frames):
            longest = max(frame.size(0) for frame in frames)
            out = frames[0].new(len(frames), longest, frames[0].size(1)).fill_(0.0)
            for i, v in enumerate(frames):
                out[i, : v.size(0)] = v
            return out
    """,
    "foreign_scores": """
        class Scorer:
            def f(self, state, next_token: torch.Tensor):
                scores = torch.empty_like(next_token, dtype=torch.float)
                for i, j in enumerate(next_token):
                    scores[i] = self.lm.BaseScore(state, self.names[j], self.scratch)
                return scores
    """,
    "array_offsets": """
        import numpy as np

        def f(arr, offset):
            arr = arr.copy()
            for n in range(1, arr.shape[0]):
                arr[n, :] += offset * n
            return arr.ravel("F")
    """,
    "array_of_an_object": """
        import numpy as np

        class Filter:
            def __init__(self):
                ndim, dt = 4, 1.0
                self.motion = np.eye(2 * ndim, 2 * ndim)
                for i in range(ndim):
                    self.motion[i, ndim + i] = dt
    """,
    "either_library": """
        import numpy as np

        def f(xp, x, n, blank):
            r = xp.full((n, 2), -1e10, dtype=np.float32)
            r[0, 1] = x[0, blank]
            for i in range(1, n):
                r[i, 1] = r[i - 1, 1] + x[i, blank]
            return r
    """,
    "array_diagonal": """
        import numpy as np

        def f(matrix):
            rows, _ = matrix.shape
            return sum([matrix[i, i] for i in range(rows)]) / rows
    """,
    "last_dimension": """
        def f(self, X: torch.Tensor, n: int):
            result = torch.zeros_like(X[..., 0])
            for i in range(n // 2):
                result += (X[..., 2 * i] + 10.0 * X[..., 2 * i + 1]).pow(2)
            return result
    """,
    "last_dimension_gathered": """
        def f(X: torch.Tensor, n: int):
            parts = []
            for i in range(n - 1):
                parts.append(X[..., i])
            return torch.stack(parts, dim=-1)
    """,
    "rest_written": """
        def f(features: torch.Tensor, sigmas: torch.Tensor):
            for i in range(features.size(1)):
                features[:, i, ...] /= sigmas[i]
            return features
    """,
    "picked_in_the_last": """
        def f(tensor, order):
            out = torch.zeros_like(tensor)
            for b in range(tensor.shape[0]):
                out[b] = tensor[b][..., order[b]].clone()
            return out
    """,
    "several_positions_each": """
        def f(psi, candidates, n):
            values = torch.logsumexp(psi, dim=0)
            psi = torch.full_like(psi, -1e10)
            for i in range(n):
                psi[i, candidates[i]] = values[i]
            return psi
    """,
    "sorted_rows": """
        def f(x: torch.Tensor, y: torch.Tensor):
            x, perm = x.sort()
            y = torch.clone(y)
            for i in range(x.shape[0]):
                y[i] = y[i][perm[i]]
            return x, y
    """,
    "column_by_index": """
        def f(wheel: torch.Tensor, k: torch.Tensor, f: torch.Tensor, out: torch.Tensor):
            for c in range(wheel.shape[1]):
                column = wheel[:, c]
                out[:, c, :, :] = (1 - f) * column[k] / 255.0
            return out
    """,
    "lists_of_matrices": """
        def f(a, b):
            return [[sum([torch.matmul(a[n][k], b[k][m]) for k in range(len(a[0]))]) for m in range(len(b[0]))] for n in range(len(a))]
    """,
    "levels_of_a_list": """
        def f(a, b, n, m):
            return sum([torch.matmul(a[n][k], b[k][m]) for k in range(len(a[0]))])
    """,
    "feature_maps": """
        def f(real, fake):
            loss = 0.0
            for r, g in zip(real, fake):
                loss += torch.mean(torch.abs(r - g))
            return loss
    """,
    "several_labels": """
        def f(probs: torch.Tensor, k: int):
            topk_labels = probs.topk(k, 1, True, True)[1]
            out = probs.new_full(probs.size(), 0)
            for i in range(probs.shape[0]):
                out[i, topk_labels[i]] = 1
            return out
    """,
    "object_of_activations": """
        class Cache:
            def f(self, name, n):
                parts = []
                for i in range(n):
                    parts.append(self[(name, i, "mlp")])
                return torch.stack(parts, dim=0)
    """,
    "nested_recurrence": """
        def f(x):
            for j in range(1, x.shape[1]):
                x[0][j] = x[0][j - 1] * 0.5
            return x
    """,
    "shifted_onto_itself": """
        def f(x, n):
            for j in range(n - 1):
                x[0][j] = x[0][j + 1]
            return x
    """,
    "points_to_centres": """
        def f(points: torch.Tensor, centres: torch.Tensor):
            d = torch.empty(points.shape[0], centres.shape[0])
            for c in range(centres.shape[0]):
                d[:, c] = torch.norm(points - centres[c], dim=1, p=2)
            return d
    """,
    "parts_of_several_loops": """
        def f(r: torch.Tensor, a):
            out = []
            for b in r:
                for c in r:
                    out.append(torch.stack([a, b, c]))
            return torch.stack(out)
    """,
    "list_of_actions": """
        def f(agent, obs, last):
            actions = agent(obs)
            if last:
                return torch.stack(actions, -1)
            return torch.stack([act.argmax(dim=-1) for act in actions], dim=-1)
    """,
    "norms_of_gradients": """
        def f(input_gradient, Q_in):
            a = torch.stack([p.norm() for p in input_gradient], dim=0)
            return a, torch.stack([q.norm(float("inf")) for q in Q_in])
    """,
    "random_draws": """
        def f(x: torch.Tensor, model):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = model.draw()
            return out
    """,
}

# Said wrongly of packages from PyPI, rounds 7 to 20, and of programs like theirs.
LEFT_ALONE |= {
    "lists_of_lists": """
        class CRF(nn.Module):
            def __init__(self, n, transition_matrix=None):
                super().__init__()
                start = torch.zeros(n + 3, n + 3)
                for i in range(len(transition_matrix)):
                    for j in range(len(transition_matrix[i])):
                        start[i][j] = transition_matrix[i][j]
                self.transitions = nn.Parameter(start)
    """,
    "objects_of_another_class": """
        def f(x: ObjectArray):
            result = torch.empty(len(x), 2)
            for i, solution in enumerate(x):
                result[i, 0] = solution[0]
                result[i, 1] = solution[1]
            return result
    """,
    "lengths_that_may_be_a_list": """
        def f(h, lengths):
            last = []
            for i, n in enumerate(lengths):
                last.append(h[i, n - 1])
            return torch.stack(last, 0)
    """,
    "bounds_that_may_be_numbers": """
        def f(x, lo, hi):
            y = torch.empty_like(x)
            for i in range(len(x)):
                y[i] = max(lo, min(hi, x[i]))
            return y
    """,
    "rows_against_one_point": """
        def f(points: torch.Tensor, centres: torch.Tensor):
            nearest = torch.zeros(points.shape[0], dtype=torch.long)
            for i in range(points.shape[0]):
                d = ((centres - points[i]) ** 2).sum(dim=1)
                nearest[i] = d.argmin()
            return nearest
    """,
    "one_tensor_by_two_names": """
        def f(x: torch.Tensor):
            y = x
            for i in range(x.shape[0]):
                y[i] = x[i] + x[0]
            return y
    """,
    "products_of_unknown_rank": """
        def f(a: torch.Tensor, b: torch.Tensor):
            width = b.size(2)
            total = 0.0
            for i in range(a.size(0)):
                total += torch.dot(a[i], b[i]) / width
            return total
    """,
    "drawn_in_every_turn": """
        def f(n: int, dim: int):
            samples = torch.randn(n, dim)
            for i in range(2, dim):
                samples[:, i] = torch.randint(0, 4, (n,)).float()
            return samples
    """,
    "number_or_vector_into_columns": """
        def f(n, dim, base):
            out = torch.zeros(n, dim)
            for i in range(dim):
                out[:, i] = base
            return out
    """,
    "rows_of_different_lengths": """
        class Expert(nn.Module):
            def forward(self, mode, features, labels, **kwargs):
                features = torch.stack([f.mean(dim=0) for f in features], dim=0)
                return features
    """,
    "list_of_labels": """
        class Head(nn.Module):
            def calibrate(self, logits, label_all):
                start = [label[0][0] if label[0][0] >= 0 else 0 for label in label_all]
                return torch.tensor(start)
    """,
    "weights_in_a_list": """
        def f(pred: torch.Tensor, label: torch.Tensor, class_weight=None):
            return torch.tensor([class_weight[cls] for cls in label])
    """,
    "order_in_a_list": """
        def f(weight: torch.Tensor, order=[0, 2, 4, 6, 1, 3, 5, 7]):
            packed = torch.zeros(weight.shape[1], dtype=torch.int32)
            for i in range(8):
                packed += weight[order[i], :] << (i * 4)
            return packed
    """,
    "list_of_pairs_of_pairs": """
        def collate(batch):
            return torch.stack([item[0][1] for item in batch])
    """,
    "two_devices": """
        def f(targets: torch.Tensor, n):
            ids = targets.cpu().detach().long()
            ones = F.one_hot(ids, num_classes=n).float()
            for i in range(len(targets)):
                ones[i, ids[i]] = targets[i] - targets[i].detach() + 1.0
            return ones
    """,
    "columns_against_a_vector": """
        def top_k(output, target, k=3):
            pred = torch.topk(output, k, dim=1)[1]
            correct = 0
            for i in range(k):
                correct += torch.sum(pred[:, i] == target).item()
            return correct / len(target)
    """,
    "ranks_of_a_mesh": """
        def f(levels: torch.Tensor, w, h):
            xx, yy = torch.meshgrid(torch.arange(w), torch.arange(h))
            r = (xx ** 2 + yy ** 2).sqrt()
            out = torch.zeros_like(r)
            for i in range(1, len(levels)):
                out += r.gt(levels[i]).int()
            return out
    """,
    "matrix_times_number": """
        def f(means: torch.Tensor, covars: torch.Tensor):
            return torch.stack([torch.eye(means.size(-1)) * c for c in covars])
    """,
    "counted_from_one": """
        def f(x: torch.Tensor):
            out = torch.zeros_like(x)
            for k, row in enumerate(x, start=1):
                out[k - 1] = row * k
            return out
    """,
    "whole_numbers_overflow": """
        def taylor(x, nth=10):
            ans = torch.zeros_like(x)
            denom = 1.0
            for i in range(nth + 1):
                denom *= (2 * i + 1) * (2 * i + 2)
                ans = ans + (-1) ** i * x ** (2 * i) / denom
            return ans
    """,
    "positions_beside_positions": """
        def f(x: torch.Tensor, n: int):
            idxs = torch.randint(0, x.shape[0], size=(x.shape[1], n))
            return torch.stack([x[idxs[:, i], torch.arange(x.shape[1])] for i in range(n)], dim=1)
    """,
    "bins": """
        def ece(p: torch.Tensor, y: torch.Tensor, n_bins: int):
            edges = torch.linspace(0, 1, n_bins + 1)
            total = 0.0
            for i in range(n_bins):
                inside = (p >= edges[i]) & (p < edges[i + 1])
                if i == n_bins - 1:
                    inside = inside | (p == edges[i + 1])
                total += p[inside].sum() - y[inside].sum()
            return total
    """,
    "less_memory_on_purpose": """
        def ranking_low_mem(data: torch.Tensor):
            x = torch.zeros_like(data)
            for col in range(data.shape[2]):
                x[:, :, col] = (data[:, :, col] >= data[:, :, col].unsqueeze(-2)).sum(0)
            return x
    """,
    "condition_on_rows_of_unknown_rank": """
        def f(sums: torch.Tensor, counts: torch.Tensor, k: int, shape):
            reps = torch.zeros(k, *shape)
            for s in range(k):
                if counts[s] > 0:
                    reps[s] = sums[s] / counts[s]
            return reps
    """,
    "linear_operator": """
        def product(A, M):
            if A.supports_matrix:
                return A @ M
            out = torch.empty((A.shape[0], M.shape[1]), device=M.device, dtype=M.dtype)
            for i in range(M.shape[1]):
                out[:, i] = A @ M[:, i]
            return out
    """,
    "annotated_as_something_else": """
        def trace(A: LinearOperator, Q: torch.Tensor):
            exact = 0
            for i in range(Q.shape[1]):
                z = Q[:, i]
                exact = exact + (z * (A @ z)).sum()
            return exact
    """,
    "index_kept_within_bounds": """
        def step(b: torch.Tensor, state: torch.Tensor, n: int, n_b: int):
            new = torch.zeros(n)
            for i in range(n - 1):
                b_i = b[i + 1] if i + 1 < n_b else torch.tensor(0.0)
                new[i] = b_i + state[i + 1]
            return new
    """,
    "powers_overflow": """
        def f(order: int):
            A = torch.empty((order, order))
            for i in range(order):
                for j in range(order):
                    A[i, j] = (j + 1) ** (2 * (i + 1) - 1)
            return A
    """,
    "kernel_of_another_library": """
        import cutlass.cute as cute

        @cute.kernel
        def add_one(a: cute.Tensor, b: cute.Tensor):
            for i in range(a.shape[0]):
                b[i] = a[i] + 1
    """,
    "a_string_grows": """
        def f(level, tokens):
            lines = []
            for i in range(level.shape[2]):
                line = ""
                for j in range(level.shape[3]):
                    line += tokens[level[:, :, i, j].argmax()]
                lines.append(line)
            return lines
    """,
    "a_list_of_all_turns_around_it": """
        def f(x: torch.Tensor, scales: int, d: int):
            features = []
            for i in range(scales):
                for j in range(x.shape[1]):
                    features.append(x[i, j, ::d].view(-1))
            return torch.cat(features).view(-1, scales)
    """,
    "what_is_summed_is_no_number": """
        def f(labels, n_classes: int):
            counts = torch.zeros(n_classes)
            for c in range(n_classes):
                counts[c] = (labels == c).sum()
            return counts
    """,
    "shifts_of_bytes": """
        def f(x: torch.Tensor):
            return torch.stack([(x >> i) & 1 for i in range(8)], dim=-1)
    """,
    "predictions_of_every_iteration": """
        def f(flow_preds, flow_gt):
            n = len(flow_preds)
            loss = 0.0
            for i in range(n):
                loss += 0.8 ** (n - i - 1) * (flow_preds[i] - flow_gt).abs().mean()
            return loss
    """,
    "product_of_whole_numbers": """
        def f(ids: torch.LongTensor, n: int):
            r = 1
            for i in range(n):
                r *= ids[-1 - i].item()
            return r
    """,
    "weight_or_row_of_an_edge": """
        def f(x: torch.Tensor, edge_index: torch.Tensor, w):
            n, d = x.shape
            out = torch.zeros(n, d)
            for e in range(edge_index.size(1)):
                out[edge_index[1, e]] += w[e] * x[edge_index[0, e]]
            return out
    """,
    "shorter_windows_at_the_end": """
        def f(x: torch.Tensor, k: int):
            out = torch.zeros(x.shape[0])
            for i in range(x.shape[0]):
                out[i] = x[i : i + k].mean()
            return out
    """,
    "logarithm_under_a_condition": """
        def f(p: torch.Tensor):
            h = 0.0
            for i in range(p.shape[0]):
                for j in range(p.shape[1]):
                    if p[i, j] > 0:
                        h -= p[i, j] * torch.log(p[i, j])
            return h
    """,
    "repulsion_of_pairs": """
        def f(x: torch.Tensor):
            n, d = x.shape
            e = 0.0
            for i in range(n):
                for j in range(i + 1, n):
                    e += 1.0 / torch.norm(x[i] - x[j])
            return e
    """,
    "the_same_place_twice": """
        def f(x: torch.Tensor):
            out = torch.zeros(x.shape[0], 2)
            for i in range(x.shape[0]):
                out[i, 0] = x[i].sum()
                out[i, -2] = x[i].mean()
            return out
    """,
    "list_of_pairs_unpacked": """
        def f(pairs):
            out = []
            for a, b in pairs:
                out.append(a - b)
            return torch.stack(out)
    """,
}

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def forms() -> list[tuple[str, str]]:
    """Every row form in every style that suits it, and the whole functions; names drawn with a fixed seed."""
    chooser = random.Random(20)
    made = []
    for (row, expression, shape), (style, template) in itertools.product(ROWS, STYLES.items()):
        names = chooser.choice(NAMES)
        alloc = {"": f"torch.zeros({names['x']}.shape[0])", "row": f"torch.zeros_like({names['x']})"}[shape]
        text = textwrap.dedent(template).strip().format(
            f=f"{row}_{style}", alloc=alloc, body_index=expression.format(r=f"{names['x']}[{names['i']}]"),
            body_helper=expression.format(r=names["h"]), **names,
        )  # fmt: skip
        made.append((f"{row}_{style}", HEADER + text + "\n"))
    made += [(name, HEADER + textwrap.dedent(text).strip() + "\n") for name, text in WHOLE.items()]
    return made


def left_alone() -> list[tuple[str, str]]:
    return [(name, HEADER + textwrap.dedent(text).strip() + "\n") for name, text in LEFT_ALONE.items()]
