"""Messages of an installation: torch that is not there, is hidden by a file, or does not fit its libraries, its extensions or the GPU's driver."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, reads, running

WHICH = "`python -c \"import sys, torch; print(sys.executable, torch.__version__, torch.version.cuda, torch.__file__)\"` says which python and which torch it is."
TOGETHER = "Install torch and what is compiled against it in one command, so that pip chooses versions that fit: `pip install torch torchvision torchaudio`."


@reads(r"No module named '(?P<module>torch(?:vision|audio|text)?)'(?! \()", example="ModuleNotFoundError: No module named 'torch'")
def not_installed(found: Found) -> Reading:
    module = found["module"]
    return Reading(
        f"the python that runs has no {module}",
        f"`import {module}` looked through the folders of this interpreter (`sys.path`), and {module} lies in none of them.",
        (
            f"{module} was installed for another python: another virtual environment, conda's base, the system's. `pip` and `python` need not belong together.",
            "A notebook's kernel, an editor or a service starts another interpreter than the shell does.",
            "A package is being built: its `setup.py` imports torch, and pip builds in an environment of its own, which has none (flash-attn and other extensions).",
        )
        if module == "torch"
        else (f"{module} is a package of its own: installing torch does not bring it.", f"{module} was installed for another python than the one that runs."),
        None,
        (f"`python -m pip install {module}` installs for the very python that is called `python`; in a notebook `%pip install {module}`.",
         "For a package that imports torch while it is built: `pip install --no-build-isolation NAME`, with torch installed before."),
        running("import sys", "print(sys.executable)"),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"No module named 'torch\._six'", r"from 'torch\._six'", example="ModuleNotFoundError: No module named 'torch._six'")
def module_of_old_torch(found: Found) -> Reading:
    return Reading(
        "`torch._six` was taken out of torch 2.0",
        "It was an internal helper from the time when torch ran on Python 2 as well. Code that imports it was written for torch 1.",
        ("A package (an old apex, deepspeed, timm, torchvision or a copied repository) is older than the installed torch.",),
        None,
        ("Upgrade the package that the traceback's last lines name; in code of one's own: `collections.abc` for `container_abcs`, `str` for `string_classes`, `math.inf` for `inf`.",),
        running("import collections.abc, math", "print(math.inf)", prints="inf"),
        rule=NO_RULE,
    )


@reads(
    r"(?:partially initialized )?module 'torch' has no attribute '(?P<name>nn|Tensor|tensor|optim|cuda|utils|float32|zeros|randn|no_grad|device|manual_seed|__version__|save|load)'",
    example="AttributeError: partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular import)",
)
def torch_hidden(found: Found) -> Reading:
    name = found["name"]
    return Reading(
        "what was imported as `torch` is not torch",
        f"Every torch has `torch.{name}`. `import torch` found something else of that name first, or a broken rest of an installation.",
        (
            "A file `torch.py` or a folder `torch` lies beside the script or in the working directory (python looks there first): often the script itself.",
            "A module of the program that is called like one of the standard library (`random.py`, `types.py`, `typing.py`, `queue.py`) breaks torch's own imports.",
            "An installation that was interrupted, or removed only in part, left a folder without `__init__.py`.",
        ),
        None,
        ("`python -c \"import torch; print(torch.__file__, torch.__path__)\"`: if that is not in site-packages, rename what it shows and delete its `__pycache__`; if it is, install torch anew.",),
        rule=NO_RULE,
    )


# The release that brought a name in, as far as its absence is met often.
SINCE = {"torch.nn.RMSNorm": "2.4", "torch.nn.functional.rms_norm": "2.4", "torch.nn.functional.scaled_dot_product_attention": "2.0", "torch.amp.GradScaler": "2.3", "torch.nn.attention": "2.2",
         "torch.library.custom_op": "2.4", "torch.utils._pytree.register_pytree_node": "2.2", "torch.nn.utils.parametrizations.weight_norm": "2.0"}  # fmt: skip


@reads(r"module '(?P<module>torch\.[\w.]+)' has no attribute '(?P<name>\w+)'", example="AttributeError: module 'torch.nn' has no attribute 'RMSNorm'")
def not_in_this_release(found: Found) -> Reading:
    module, name = found["module"], found["name"]
    since = SINCE.get(f"{module}.{name}")
    return Reading(
        f"this torch has no `{module}.{name}`",
        f"`{module}` was imported, and there is no `{name}` in it."
        + (f" It came with PyTorch {since}: the one that runs is older." if since else " It may have come with a later release than the one that runs, have been taken out of it, or never have been there."),
        (("The code, or a library, was written for a later torch.",) if since else ("A library expects another release of torch.", "The name is misspelt, or lives in another module.")),
        None,
        (
            f"`pip install 'torch>={since}'`, or a release of the library that belongs to this torch." if since else "`print(torch.__version__)`, and look where that release has it: the library's own requirements name the torch it was made for.",
            "In a notebook: restart the kernel after installing; the old torch stays imported until then.",
        ),
        running("print(hasattr(torch.nn, 'LayerNorm'))", prints="True"),
        rule=NO_RULE,
    )


@reads(r"module 'torch' has no attribute '(?P<name>compile|amp|vmap|func|accelerator|xpu|inference_mode|set_default_device|nested|float8_e4m3fn|mps)'",
       example="AttributeError: module 'torch' has no attribute 'compile'")  # fmt: skip
def torch_too_old(found: Found) -> Reading:
    name = found["name"]
    return Reading(
        f"this torch is older than `torch.{name}`",
        f"`torch.{name}` came with a later release than the one that runs.",
        ("The environment holds an old torch, pinned by another package or by an old python.", "Another python runs than the one that was upgraded."),
        None,
        (WHICH, "`python -m pip install --upgrade torch`; a python that is too old gets no new torch at all."),
        rule=NO_RULE,
    )


@reads(
    r"(?P<library>lib(?:cu\w+|nv\w+|nccl|cusparseLt)\.so\.[\d.]*\d): cannot open shared object file",
    example="ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
)
def library_missing(found: Found) -> Reading:
    library = found["library"]
    return Reading(
        f"`{library}` is not found when the program starts",
        f"Something compiled was linked against `{library}`, a library of CUDA in that very version, and the loader finds none by this name.",
        (
            "An extension (torchvision, flash-attn, bitsandbytes, one of the program's own) was compiled for another version of CUDA than the installed torch has.",
            "The packages `nvidia-…-cu12` (or `-cu11`) that torch's wheel depends on are missing or of another version: `pip install --no-deps`, or a mixture of pip and conda.",
            "LD_LIBRARY_PATH points to another installation of CUDA, which is found first.",
        ),
        None,
        (TOGETHER, "Compile extensions anew after torch was changed. " + WHICH),
        rule=NO_RULE,
    )


@reads(r"undefined symbol: (?P<symbol>_?_?\w*(?:c10|torch|at\d|5torch|3c10)\w*)", example="ImportError: undefined symbol: _ZN3c104cuda9SetDeviceEi")
def undefined_symbol(found: Found) -> Reading:
    return Reading(
        "a compiled package was built for another torch",
        "The package asks torch's libraries for a function that this torch does not have by that name. Names of C++ functions change from one release to the next, so what is compiled "
        "against one torch does not load with another.",
        (
            "torch was upgraded or downgraded, and the extension (flash-attn, torchvision, xformers, apex, torch-scatter) was not compiled or installed anew.",
            "A ready-made wheel was taken that was made for another torch, another CUDA or the other C++ ABI (`cxx11abiTRUE` and `cxx11abiFALSE` in its name).",
        ),
        None,
        ("Install the package's wheel for this torch, or remove it and compile: `pip install --no-build-isolation --no-cache-dir NAME`. " + WHICH,),
        rule=NO_RULE,
    )


@reads(r"version `?(?P<version>(?:GLIBCXX|CXXABI|GLIBC)_[\d.]*\d)'? not found", example="ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found")
def system_library_too_old(found: Found) -> Reading:
    version = found["version"]
    system = version.startswith("GLIBC_")
    return Reading(
        f"the {'system' if system else 'C++ library that is loaded'} is older than what this package was built with",
        f"The package needs {version}; the {'C library of this system' if system else 'libstdc++ that was loaded first'} does not have it.",
        ("The wheel, or an extension compiled elsewhere, was made for a newer system than this one.",)
        if system
        else ("The system's libstdc++ is loaded before that of the conda environment.", "An extension was compiled with a newer compiler than the system's."),
        None,
        ("A newer system or container; or compile on this one.",)
        if system
        else ("`conda install -c conda-forge libstdcxx-ng`, with the environment's `lib` before the system's in LD_LIBRARY_PATH; or compile with the system's own compiler.",),
        rule=NO_RULE,
    )


@reads(r"Numpy is not available", r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy (?P<version>2[\d.]*)", r"compiled against (?:ABI|API) version (?:0x)?\w+ but this version of numpy is",
       example="RuntimeError: Numpy is not available")  # fmt: skip
def numpy_unfit(found: Found) -> Reading:
    return Reading(
        "torch and NumPy do not fit together",
        "torch works without NumPy and looks for it when it is imported; here it found none, or one whose binary form it was not compiled for. Everything but the exchange with NumPy "
        "(`from_numpy`, `.numpy()`) works all the same.",
        ("torch 2.2 or older, or another compiled package, with NumPy 2.", "NumPy is not installed in this environment, or its import fails."),
        None,
        ("Upgrade torch (2.3 and later know NumPy 2), or `pip install 'numpy<2'`.", "`python -c \"import numpy; print(numpy.__version__)\"` shows whether NumPy itself is whole."),
        rule=NO_RULE,
    )


@reads(r"(?:Could not find a version that satisfies the requirement|No matching distribution found for) torch(?P<spec>[=<>~!]=?[\w.+]+)?",
       example="ERROR: Could not find a version that satisfies the requirement torch==1.7.0 (from versions: none)")  # fmt: skip
def no_wheel(found: Found) -> Reading:
    spec = found["spec"] if found.has("spec") else ""
    return Reading(
        f"there is no wheel of torch{spec} for this python and system",
        "pip only considers wheels for the very python version, operating system and processor that it runs on. What it lists behind `from versions` are those it may take.",
        (
            "This python is newer than those that this torch was built for (each release knows a few), or very old.",
            "A version such as `+cu121` lies on PyTorch's own index only, not on PyPI.",
            "A 32-bit python, a musl system (Alpine), or an Intel Mac, for which nothing is built since torch 2.3.",
        ),
        None,
        ("`python --version` and `python -c \"import struct; print(struct.calcsize('P') * 8)\"`; then a python that this torch has wheels for, or a newer torch.",
         "`pip install torch --index-url https://download.pytorch.org/whl/cu126` for a certain CUDA, `…/whl/cpu` for none."),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"\[WinError (?P<number>126|127|1114)\]", example="OSError: [WinError 126] The specified module could not be found. Error loading \"fbgemm.dll\" or one of its dependencies.")
def dll_not_loaded(found: Found) -> Reading:
    return Reading(
        "Windows could not load one of torch's libraries",
        "The file that is named is mostly there; what it depends on is missing or does not fit.",
        ("The Microsoft Visual C++ runtime (2015 to 2022, x64) is missing or old.", "Files of two installations of torch, or of pip and conda, lie in one environment.",
         "An antivirus program has removed a file."),
        None,
        ("Install the current Visual C++ redistributable (x64); then torch into a new environment.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"\[WinError 1455\]", example="OSError: [WinError 1455] The paging file is too small for this operation to complete.")
def paging_file(found: Found) -> Reading:
    return Reading(
        "Windows has no more memory to promise",
        "Each process that imports torch reserves some gigabytes for its libraries, and Windows must be able to back them by memory and paging file, even if they are never touched.",
        ("Each worker of a DataLoader is a process that imports torch: `num_workers` is too high.", "The paging file is small or switched off."),
        None,
        ("Fewer workers (`num_workers=0` first); a larger paging file.",),
        rule=NO_RULE,
    )


@reads(r"(?:OMP: )?Error #15: Initializing [\w.+-]+, but found [\w.+-]+ already initialized", r"OMP: Error #15",
       example="OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.")  # fmt: skip
def two_openmp(found: Found) -> Reading:
    return Reading(
        "two copies of the OpenMP library are in one process",
        "torch brings its own, and another package (NumPy with MKL, scikit-learn, OpenCV) has loaded another one. Two of them can compute slowly or wrongly, so the second refuses to start.",
        ("pip's torch in a conda environment whose NumPy uses MKL, or the other way round.",),
        None,
        ("Install all of them from one source, in a new environment. KMP_DUPLICATE_LIB_OK=TRUE takes the refusal away, not the danger of wrong results.",),
        rule=NO_RULE,
    )


@reads(
    r"(?P<what>No CUDA GPUs are available|CUDA driver initialization failed, you might not have a CUDA gpu|Unexpected error from cudaGetDeviceCount\(\)|CUDA initialization: )"
    r"(?:.*?(?:Error (?P<code>\d+):|(?P<unknown>CUDA unknown error)))?",
    example="RuntimeError: No CUDA GPUs are available",
)
def no_gpu_to_be_had(found: Found) -> Reading:
    code = found["code"] if found.has("code") else ""
    causes = {
        "804": ("The container's CUDA libraries are newer than the host's driver, and this kind of GPU does not allow that.",),
        "802": ("The machine joins its GPUs by NVSwitch, and the service `nvidia-fabricmanager` does not run, or is of another version than the driver.",),
        "803": ("The driver's libraries were upgraded, and its kernel module is still the old one: a restart is missing.",),
        "101": ("CUDA_VISIBLE_DEVICES names a GPU that is not there.",),
    }.get(
        code,
        (
            "CUDA_VISIBLE_DEVICES is empty or names a GPU that is not there (it must be set before the first use of CUDA).",
            "A container without access to the GPUs (`docker run --gpus all`), or a batch system's job that asked for none.",
            "The driver does not answer: `nvidia-smi` fails, too, after a suspend or an upgrade without a restart.",
        ),
    )
    return Reading(
        "torch was built for CUDA, and the driver gives it no GPU",
        f"The program asked for a GPU, and CUDA could not be started{f' (error {code})' if code else ''}. Model and data have no part in it.",
        causes,
        None,
        ("Look at `nvidia-smi` and `echo $CUDA_VISIBLE_DEVICES` in the same shell or container. A program that should run without a GPU, too: `'cuda' if torch.cuda.is_available() else 'cpu'`.",),
        rule=NO_RULE,
    )
