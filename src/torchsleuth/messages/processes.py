"""Messages of `torch.distributed`: processes that were not started, do not meet, or find their port taken."""

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
