"""Messages of NCCL, of DistributedDataParallel and of launchers: processes that do not find each other, do not do the same, or were ended."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads

FIRST = "The first error of all ranks' logs, in time, is the cause; the others only follow."

# What NCCL says: title, meaning, causes, what to change.
NCCL = {
    "unhandled system error": (
        "NCCL failed at a call of the operating system",
        "Sockets, shared memory or a network card did not do what NCCL asked for. Model and data have no part in it.",
        ("NCCL chose a network interface over which the machines do not reach each other (docker0, a VPN): NCCL_SOCKET_IFNAME names the right one.",
         "A container's /dev/shm is too small (`--shm-size=8g` or `--ipc=host`).", "A firewall closes the ports between the machines.", "Another process ended, and its connection broke."),
        "Run with NCCL_DEBUG=INFO: the line with `WARN` names the call.",
    ),
    "invalid usage": (
        "NCCL was called in a way that it does not allow",
        "Most often two processes use one GPU (`Duplicate GPU detected`): NCCL wants one GPU for each process.",
        ("`torch.cuda.set_device(local_rank)` is missing, so that every process works on cuda:0.", "There are more processes on a machine than GPUs that CUDA_VISIBLE_DEVICES shows.",
         "The global rank was taken for the number of a GPU, on a second machine."),
        "First thing in each process: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`.",
    ),
    "unhandled cuda error": (
        "NCCL failed at a call of CUDA",
        "A CUDA call inside of NCCL returned an error: often one that an earlier kernel of the program had left.",
        ("An earlier device-side assert or illegal access on this rank.", "The GPU's memory is full: NCCL needs some for its buffers.", "NCCL was built for another CUDA than the driver supports."),
        "Run with NCCL_DEBUG=INFO, and a single process with CUDA_LAUNCH_BLOCKING=1.",
    ),
    "remote process exited or there was a network error": (
        "another process of the group has gone",
        "This process waited for data of another one, and the connection ended. It is a consequence, not the cause.",
        ("The other process raised an exception or was killed (memory): its own log says why.", "The network between the machines broke."),
        FIRST,
    ),
    "internal error": (
        "NCCL failed inside itself",
        "Something that NCCL took for granted did not hold.",
        ("Different versions of NCCL in one group.", "The ranks issue different collectives, or tensors of different sizes.", "A topology that this version does not know."),
        "Run with NCCL_DEBUG=INFO; `python -c \"import torch; print(torch.cuda.nccl.version())\"` on each machine.",
    ),
}  # fmt: skip


@reads(
    r"NCCL (?:error|Error)[^\n]*?(?P<status>unhandled system error|invalid usage|unhandled cuda error|remote process exited or there was a network error|internal error)",
    example="DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
)
def nccl_status(found: Found) -> Reading:
    title, meaning, causes, fix = NCCL[found["status"].lower()]
    return Reading(title, meaning, causes, None, (fix,), rule=NO_RULE)


@reads(r"NCCL communicator was aborted(?: on rank (?P<rank>\d+))?", example="RuntimeError: NCCL communicator was aborted on rank 1. Original reason for failure was: watchdog")
def communicator_aborted(found: Found) -> Reading:
    return Reading(
        "the connections of this rank were closed after an earlier error",
        "Once a collective has failed or timed out, torch closes NCCL's connections; each later collective ends with this message.",
        ("An earlier error of this rank, which the message quotes as the original reason.", "A timeout because another rank did not come to the same collective."),
        None,
        (FIRST,),
        rule=NO_RULE,
    )


@reads(
    r"client socket has timed out after (?P<ms>\d+)\s*ms while trying to connect to \(?(?P<host>[^,\s)]+), (?P<port>\d+)",
    r"setting up NCCL communicator and retrieving ncclUniqueId from \[0\]",
    r"(?:Broken pipe|Connection reset by peer)[^\n]*(?:TCPStore|ncclUniqueId)",
    example="DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).",
)
def first_process_not_reached(found: Found) -> Reading:
    where = f"{found['host']}, port {found['port']}" if found.has("host") else "rank 0"
    return Reading(
        f"a process did not reach {where}",
        "Rank 0 listens at MASTER_ADDR and MASTER_PORT, and the others meet there. " + (f"{where} did not answer within {found.int('ms') / 1000:g} seconds." if found.has("ms")
        else "The connection to rank 0 ended before the group was set up."),
        (
            "Rank 0 never started, or ended before: its own log says why.",
            "MASTER_ADDR or MASTER_PORT are not the same in all processes, or name an address that the other machines do not reach (`localhost` on several machines).",
            "A firewall, or a proxy (`http_proxy`), stands between them.",
            "The number of nodes or processes is larger than what is really started.",
        ),
        None,
        ("From the other machine: `nc -vz HOST PORT` while rank 0 runs; the same `--rdzv-endpoint` (or MASTER_ADDR) everywhere.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"trying to initialize the default process group twice", example="ValueError: trying to initialize the default process group twice!")
def group_started_twice(found: Found) -> Reading:
    return Reading(
        "`init_process_group` was called twice in one process",
        "Each process has one default group; it is there until `destroy_process_group()`.",
        ("A library (Accelerate, DeepSpeed, Lightning) has started it, and the script does so again.", "A cell of a notebook, or a function called for each fold, runs again."),
        None,
        ("`if not torch.distributed.is_initialized(): torch.distributed.init_process_group(...)`.",),
        rule=NO_RULE,
    )


@reads(
    r"DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient",
    example="RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.",
)
def nothing_to_synchronise(found: Found) -> Reading:
    return Reading(
        "the module given to DistributedDataParallel has nothing to train",
        "DistributedDataParallel averages gradients over the processes; no parameter of this module requires one.",
        ("A frozen part (a teacher, an encoder) is wrapped like the rest: it needs no wrapper.", "Everything was frozen before wrapping, and is to be thawed later: DistributedDataParallel only "
         "knows what requires gradients when it is built.", "The layers are kept in a plain list, so that the module has no parameters."),
        None,
        ("Wrap only what is trained; thaw first, then wrap.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"failed \(exitcode: (?P<code>-?\d+)\)", r"ChildFailedError", r"torch\.distributed\.elastic\.multiprocessing\.errors",
       example="ChildFailedError: failed (exitcode: -9) local_rank: 0 (pid: 3213) of binary: python")  # fmt: skip
def launched_process_ended(found: Found) -> Reading:
    code = int(found["code"]) if found.has("code") else None
    ended = {
        -9: ("was killed (signal 9)", ("Main memory ran out, and the system ended it: `dmesg` says so. Each process, and each of its workers, holds its own copy of the data.",
                                       "A batch system's limit of memory or time.")),
        -11: ("died of a segmentation fault (signal 11)", ("A compiled extension, or libraries that do not fit together.",)),
        -6: ("was aborted (signal 6)", ("NCCL's watchdog ended it after a collective timed out.", "A failed check in C++ code: the lines above say which.")),
        -7: ("died of a bus error (signal 7)", ("/dev/shm is full: a container needs `--shm-size=8g` or `--ipc=host`.",)),
        -15: ("was asked to end (signal 15)", ("Another rank failed first, and the launcher ended the rest.", "A batch system's time was up.")),
        2: ("ended with status 2", ("The script did not understand its arguments: argparse ends so, and says why above.", "The file was not found.")),
    }.get(code or 0, ("raised an exception" if code == 1 else "ended with an error", ("The exception stands above, in the first traceback of any rank.",)))  # fmt: skip
    return Reading(
        f"a process that torchrun had started {ended[0]}",
        "This is torchrun's own message, after the fact: it says which rank ended first, and how; not why.",
        ended[1],
        None,
        (FIRST, "Decorate `main` with `torch.distributed.elastic.multiprocessing.errors.record`: then the launcher's message holds the traceback. `--log-dir logs --redirects 3` keeps each rank's output."),
        rule=NO_RULE,
    )


@reads(r"unrecognized arguments: --local[-_]rank=?\d*", example="train.py: error: unrecognized arguments: --local-rank=0")
def local_rank_argument(found: Found) -> Reading:
    return Reading(
        "the launcher hands over the rank as an argument that the script does not know",
        "`python -m torch.distributed.launch` adds `--local-rank=N` (before torch 2.0 `--local_rank`) to the script's arguments.",
        ("The script was written for `torchrun`, which sets LOCAL_RANK in the environment, and was started with the old launcher.", "The script knows `--local_rank`, with an underscore, only."),
        None,
        ("Start it with `torchrun`, and read `int(os.environ['LOCAL_RANK'])`; or accept both spellings: `parser.add_argument('--local-rank', '--local_rank', type=int, default=0)`.",),
        rule=NO_RULE,
    )


@reads(r"Distributed package doesn't have NCCL built in", r"ProcessGroupNCCL is only supported with GPUs, no GPUs found", r"ProcessGroupNCCL[^\n]*no GPUs found",
       example="RuntimeError: Distributed package doesn't have NCCL built in")  # fmt: skip
def no_nccl(found: Found) -> Reading:
    built = "built in" in found.match[0]
    return Reading(
        "this torch has no NCCL" if built else "NCCL was chosen, and the process sees no GPU",
        "NCCL moves data between NVIDIA GPUs. " + ("It is only in builds of torch for CUDA on Linux." if built else "Without a GPU it has nothing to do."),
        ("Windows or macOS, or a build for the CPU only, with `backend='nccl'`.",)
        if built
        else ("CUDA_VISIBLE_DEVICES is empty, or the container has no access to the GPUs.", "The job runs on a machine without a GPU."),
        None,
        ("`backend='gloo'` for the CPU and for Windows: `'nccl' if torch.cuda.is_available() and torch.distributed.is_nccl_available() else 'gloo'`.",),
        rule=NO_RULE,
    )


@reads(
    r"Detected mismatch between collectives on ranks",
    r"Rank (?P<rank>\d+) successfully reached monitoredBarrier, but received errors",
    example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE, but Rank 1 is running collective: BROADCAST",
)
def ranks_part(found: Found) -> Reading:
    return Reading(
        "the processes do not do the same",
        "Every process must call the same collectives in the same order, with tensors of the same size and type. They did not.",
        (
            "A branch on the rank (or on the data) around something that communicates: evaluation, logging, saving, `SyncBatchNorm`, a `barrier`.",
            "Different numbers of batches on the ranks.",
            "An exception on one rank, which another one's `try` hides.",
        ),
        None,
        ("TORCH_DISTRIBUTED_DEBUG=DETAIL names the collective and its shapes on each rank; let every rank take the same branches.", FIRST),
        rule=NO_RULE,
    )


@reads(
    r"device_ids and output_device arguments only work with single-device/multiple-device GPU modules or CPU modules, but got device_ids (?P<ids>\[[^\]]*\]), output_device (?P<output>\w+), "
    r"and module parameters \{(?P<devices>[^}]*)\}",
    example="ValueError: DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], "
    "output_device None, and module parameters {device(type='cpu')}.",
)
def wrapped_elsewhere(found: Found) -> Reading:
    on_cpu = "'cpu'" in found["devices"]
    return Reading(
        f"`device_ids={found['ids']}` for a module " + ("on the CPU" if on_cpu and found["devices"].count("type=") == 1 else "on several devices"),
        "`device_ids` names the one GPU that the module's parameters lie on. DistributedDataParallel moves nothing: "
        + ("the parameters are on the CPU." if on_cpu and found["devices"].count("type=") == 1 else f"the parameters are on {found['devices']}."),
        ("`model.to(local_rank)` is missing, or comes after the wrapper, or its result of a function that returns a new model was not kept.", "The module is meant to run on the CPU (gloo), and `device_ids` stayed."),
        raising(
            "import torch.distributed as dist",
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
            "try:",
            "    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), device_ids=[0])",
            "finally:",
            "    dist.destroy_process_group()",
            raises="but got device_ids [0]",
        )
        if on_cpu and found["ids"] == "[0]"
        else None,
        ("`model.to(local_rank)` first, then `DistributedDataParallel(model, device_ids=[local_rank])`; on the CPU leave `device_ids` out.",),
        rule=NO_RULE,
    )
