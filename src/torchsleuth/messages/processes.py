"""Messages of several processes: `torch.distributed` (not started, not meeting, port taken), and what workers cannot be started with or sent."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads


@reads(
    r"Default process group has not been initialized",
    example="ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
)
def no_process_group(found: Found) -> Reading:
    return Reading(
        "`torch.distributed` is used before it was started",
        "`DistributedDataParallel`, `DistributedSampler`, `SyncBatchNorm` in training, `all_reduce` and `get_rank` need a process group.",
        (
            "`torch.distributed.init_process_group(...)` is called later, or in another process: it has to run in every one, also in those of `mp.spawn`.",
            "The script was started with `python` and not with `torchrun`, and only starts the group under `torchrun`.",
            "`destroy_process_group()` has run already.",
        ),
        raising("torch.distributed.get_rank()", raises="ValueError: Default process group has not been initialized"),
        ("Call `init_process_group` first of all in each process; for a run with one process ask `torch.distributed.is_initialized()`.",),
    )


@reads(
    r"Error initializing torch\.distributed using env:// rendezvous: environment variable (?P<name>\w+) expected, but not set",
    example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
)
def rendezvous_variable(found: Found) -> Reading:
    return Reading(
        f"the environment variable {found['name']} is not set",
        "`init_process_group` without `init_method` reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment.",
        ("The script was started with `python train.py`: `torchrun` sets them.", "Under SLURM or MPI they have other names (SLURM_PROCID, SLURM_NTASKS)."),
        raising("torch.distributed.init_process_group('gloo')", raises="environment variable RANK expected, but not set") if found["name"] == "RANK" else None,
        ("`torchrun --nproc-per-node=4 train.py`; or set the four variables, `MASTER_ADDR=localhost MASTER_PORT=29500 RANK=0 WORLD_SIZE=1` for one process.",),
    )


@reads(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?P<work>[^)]*?OpType=(?P<op>\w+)(?:\([^)]*\)|[^)])*?Timeout\(ms\)=(?P<limit>\d+))\) ran for (?P<ran>\d+) milliseconds",
    example="RuntimeError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1806985 milliseconds before "
    "timing out.",
    fragments=(r"watchdog caught collective operation timeout",),
)
def collective_timeout(found: Found) -> Reading:
    seconds = found.int("limit") / 1000
    return Reading(
        f"a process waited {seconds:g} seconds in {found['op']} for the others",
        f"{found['op']} is done by all processes together. This one began it and, after {seconds:g} seconds (the limit of the process group), not all others had come to the same "
        "point. The process that reports it is rarely the one at fault.",
        (
            "The processes do not do the same: a branch on the rank around something that communicates (evaluation, saving or logging on rank 0 only that calls the wrapped model, "
            "`SyncBatchNorm`, a `barrier`).",
            "They have different numbers of batches: the last one is missing somewhere (`drop_last=True`, `DistributedSampler`, or the `Join` context).",
            "Another process died or ran out of memory: look for the first error in all logs, in time.",
            "Rank 0 works alone for longer than the limit (preprocessing, a download), or the machines cannot reach each other.",
        ),
        None,
        (
            "Look in all ranks' logs for the earliest error; print the step per rank, to see where they part.",
            "`init_process_group(timeout=timedelta(hours=2))` only where one process really needs so long; it mends nothing else.",
        ),
    )


@reads(
    r"(?:server socket has failed to (?:listen|bind)[^\n]*?port: (?P<port>\d+))",
    r"(?<!errno 98\] )(?<!errno 48\] )Address already in use",
    example="RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
    "use). port: 29500",
    fragments=(r"eaddrinuse", r"server socket has failed to (?:listen|bind)"),
)
def port_taken(found: Found) -> Reading:
    port = found["port"] if found.has("port") else ""
    return Reading(
        f"the port {port} is taken" if port else "the port is taken",
        "The first process listens on MASTER_PORT for the others, and something on this machine listens there already.",
        ("Another training on the same machine uses the same port (29500 is the default).", "A process of an earlier run is still alive."),
        None,
        ("Another port: `torchrun --master-port=29511 ...`, or `--standalone` on one machine, which finds a free one. Look for what is left: `ps aux | grep python`.",),
    )


@reads(
    r"An attempt has been made to start a new process before the\s+current process has finished its bootstrapping phase",
    example="RuntimeError: An attempt has been made to start a new process before the current process has finished its bootstrapping phase.",
)
def main_guard(found: Found) -> Reading:
    return Reading(
        "a worker imports the script and starts workers again",
        "Where processes are started by 'spawn' (Windows, macOS) each worker imports the script first. Code at its top level, that goes over a DataLoader with workers, would start workers of workers.",
        ("The training loop stands at the top level of the script.",),
        None,
        ("Put what runs under `if __name__ == '__main__':` (definitions stay outside), or `num_workers=0`.",),
    )


@reads(
    r"cannot pickle '(?P<kind>[\w.]+)' object",
    example="TypeError: cannot pickle '_thread.lock' object",
)
def cannot_pickle(found: Found) -> Reading:
    kind = found["kind"]
    what = {
        "generator": "a generator (a half-run loop)", "_thread.lock": "a lock", "_io.TextIOWrapper": "an open file", "_io.BufferedReader": "an open file", "module": "a module",
        "sqlite3.Connection": "a database connection", "dict_keys": "the keys of a dictionary: `list(...)` of them can be",
    }.get(kind, f"a `{kind}`")  # fmt: skip
    return Reading(
        f"{what} cannot be sent to another process, copied or saved",
        "To hand an object to a worker, to `copy.deepcopy` it or to `torch.save` it whole, all that it holds is pickled; this cannot be.",
        (
            "The dataset keeps an open file, a connection, a client or a logger from `__init__`, and the loader has workers started by 'spawn'.",
            "A model or a configuration that is copied or saved whole holds one.",
        ),
        raising("import copy", "import threading", "copy.deepcopy({'lock': threading.Lock()})", raises="TypeError: cannot pickle '_thread.lock' object")
        if kind == "_thread.lock"
        else None,
        ("Open it where it is used first (in `__getitem__`, once per worker: `if self.file is None: self.file = open(...)`), or leave it out in `__getstate__`; save `state_dict()`.",),
    )


@reads(
    r"received 0 items of ancdata",
    r"Too many open files\. Communication with the workers is no longer possible",
    example="RuntimeError: received 0 items of ancdata",
)
def too_many_files(found: Found) -> Reading:
    return Reading(
        "too many files are open at once",
        "Each tensor that a worker hands over is a piece of shared memory with a file descriptor, and the process has reached its limit.",
        ("Batches, or tensors out of them, are kept in a list: each keeps its descriptor open.", "Many small tensors per sample, many workers, a low limit (`ulimit -n`)."),
        None,
        (
            "Copy what you keep: `kept.append(x.clone())`, or `.item()` and `.numpy().copy()`.",
            "`ulimit -n 65536`, or `torch.multiprocessing.set_sharing_strategy('file_system')`.",
        ),
    )
