"""Every error input that torch's own tests know (op_db, and module_db), called from a generated program.

torchsleuth never fails itself, names the line of the call and the operation, shows every tensor operand's shape and
dtype, and names the offending argument wherever the message identifies one.
"""

from __future__ import annotations

import collections
import re
import warnings

import torch

from forward_harness import describe, run_program_with

LINE = 3  # of the call in every generated program


def _error_inputs():
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.error_inputs_func is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = list(op.error_inputs("cpu"))
            except Exception:  # some need a device or a library that is not here
                continue
        for number, error in enumerate(found):
            yield op, number, error


def _path(op) -> str:
    """The public name of the operator, or `operator` for those that the database wraps in a lambda."""
    target = op.op
    for prefix in ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.signal.windows"):
        home = torch
        for part in prefix.split(".")[1:]:
            home = getattr(home, part)
        name = op.name.split(".")[-1]
        if getattr(home, name, None) is target:
            return f"{prefix}.{name}"
    return "operator"


def program_for(sample, path: str) -> tuple[str, dict]:
    """`result = torch.gather(x0, 1, x1)` with the tensors as variables."""
    variables: dict[str, object] = {}

    def text(value, depth=3):
        if isinstance(value, torch.Tensor):
            name = f"x{len(variables)}"
            variables[name] = value
            return name
        if isinstance(value, (list, tuple)) and depth and type(value) in (list, tuple):
            inner = [text(item, depth - 1) for item in value]
            return f"[{', '.join(inner)}]" if isinstance(value, list) else f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if isinstance(value, (int, float, bool, str, type(None))) and "nan" not in repr(value) and "inf" not in repr(value):
            return repr(value)
        name = f"v{len(variables)}"
        variables[name] = value
        return name

    arguments = [text(sample.input), *(text(argument) for argument in sample.args)]
    arguments += [f"{key}={text(value)}" for key, value in sample.kwargs.items()]
    return f"import torch\n\nresult = {path}({', '.join(arguments)})\n", variables


def identified(message: str, names: list[str]) -> list[str]:
    """Parameters whose names stand in the message."""
    found = []
    for name in dict.fromkeys(names):
        if re.search(rf"argument (?:#\d+ )?['\"`]{re.escape(name)}['\"`]|['\"`]{re.escape(name)}['\"`]", message):
            found.append(name)
        elif len(name) > 2 and name != "self" and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w(])", message):
            found.append(name)
    return found


def _points_at(result, name: str) -> bool:
    """The report singles the argument out: says that the message is about it, or underlines or titles its expression."""
    operation, diagnosis = result.evidence.operation, result.diagnosis
    said = [fact.text for fact in diagnosis.facts if fact.text.startswith(("The message is about", f"`{name}` ="))]
    if any(f"`{name}" in text for text in said):
        return True
    sources = [item.source for item in operation.operands if item.argument.split("[")[0] == name and item.source]
    sources += [item.source for item in operation.arguments if item.name.split("[")[0] == name and item.source]
    return any(f"`{source}`" in diagnosis.title or diagnosis.culprits[0].source == source for source in sources) or f"`{name}`" in diagnosis.title


def _check(result, name: str, variables: dict, counts: collections.Counter, failures: list[str]) -> None:
    text = result.text
    label = f"{name}: {type(result.error).__name__}: {str(result.error)[:110]}"
    if result.diagnosis is None:
        failures.append(f"no diagnosis — {label}")
        return
    counts["diagnosed"] += 1
    if result.lines and LINE in result.lines:
        counts["line"] += 1
    else:
        failures.append(f"line {result.lines} — {label}")
    short = name.split(".")[-1].strip("_").removesuffix("_by_ref").removesuffix("_return")
    wrapped = "operator(" in text or "`operator" in text  # a lambda of the database's own: that is what the program calls
    if short in text or wrapped or (result.evidence and result.evidence.operation and short in result.evidence.operation.name):
        counts["operation"] += 1
    else:
        failures.append(f"operation not named — {label}")
    missing = []
    for value in variables.values():
        if isinstance(value, torch.Tensor):
            shape = f"[{', '.join(str(size) for size in value.shape)}]"
            if shape not in text or str(value.dtype).removeprefix("torch.") not in text:
                missing.append(shape)
    if missing:
        failures.append(f"operand not shown {missing} — {label}\n{describe(result)}")
    else:
        counts["operands"] += 1
    operation = result.evidence.operation
    names = [o.argument.split("[")[0] for o in operation.operands] + [a.name.split("[")[0] for a in operation.arguments] if operation else []
    wanted = identified(str(result.error), names)
    if wanted:
        counts["identified"] += 1
        if any(_points_at(result, word) for word in wanted):
            counts["offender"] += 1
        else:
            failures.append(f"offender {wanted} not named — {label}")


def test_op_db_error_inputs(capsys):
    counts: collections.Counter = collections.Counter()
    failures: list[str] = []
    operators = set()
    for op, number, error in _error_inputs():
        program, variables = program_for(error.sample_input, _path(op))
        namespace = {**variables, "operator": op.op}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = run_program_with(program, namespace)
        if result.error is None:
            continue
        counts["raised"] += 1
        operators.add(op.name)
        _check(result, op.name, variables, counts, failures)
    _report(capsys, "op_db", counts, len(operators), failures)
    assert counts["raised"] >= 600
    assert counts["diagnosed"] == counts["line"] == counts["raised"], "\n".join(failures[:10])
    assert counts["operation"] == counts["raised"], "\n".join(failures[:10])
    assert counts["operands"] == counts["raised"], "\n".join(failures[:10])
    assert counts["offender"] >= 0.9 * counts["identified"], "\n".join(failures[:10])


def _report(capsys, name: str, counts: collections.Counter, operators: int, failures: list[str]) -> None:
    with capsys.disabled():
        print(
            f"\n{name}: {counts['raised']} error inputs of {operators} operators raised; diagnosed {counts['diagnosed']}, call line "
            f"{counts['line']}, operation {counts['operation']}, all operands shown {counts['operands']}, offending argument "
            f"{counts['offender']} of {counts['identified']} that the message identifies"
        )


def test_module_db_error_inputs(capsys):
    from torch.testing._internal.common_modules import module_db

    counts: collections.Counter = collections.Counter()
    failures: list[str] = []
    kinds = set()
    for info in module_db:
        function = getattr(info, "module_error_inputs_func", None)
        if function is None:
            continue
        for error in function(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True):
            sample = error.module_error_input
            at_construction = "CONSTRUCTION" in str(error.error_on)
            namespace: dict[str, object] = {"Module": info.module_cls}
            made, forward = sample.constructor_input, sample.forward_input
            namespace["arguments"], namespace["options"] = made.args, made.kwargs
            if at_construction:
                program = "import torch\n\nmodule = Module(*arguments, **options)\n"
            else:
                namespace["module"] = info.module_cls(*made.args, **made.kwargs)
                given = [f"x{k}" for k in range(len(forward.args))]
                namespace.update(zip(given, forward.args))
                named = {f"k_{key}": value for key, value in forward.kwargs.items()}
                namespace.update(named)
                program = f"import torch\n\nresult = module({', '.join([*given, *(f'{key}=k_{key}' for key in forward.kwargs)])})\n"
            result = run_program_with(program, namespace)
            if result.error is None:
                continue
            counts["raised"] += 1
            kinds.add(info.name)
            tensors = {} if at_construction else {key: value for key, value in namespace.items() if isinstance(value, torch.Tensor)}
            _check(result, info.name if at_construction else "module", tensors, counts, failures)
    _report(capsys, "module_db", counts, len(kinds), failures)
    assert counts["raised"] >= 20
    assert counts["diagnosed"] == counts["line"] == counts["operation"] == counts["raised"], "\n".join(failures[:10])
    assert counts["operands"] == counts["raised"], "\n".join(failures[:10])
    assert counts["offender"] >= 0.9 * counts["identified"], "\n".join(failures[:10])


