"""What `torchsleuth explain` answers: rules, messages, questions, logs; and that it says so when it does not know."""

from __future__ import annotations

import json
import pathlib
import random
import re
import subprocess
import sys

import pytest

import torchsleuth
from torchsleuth.explainer import explain
from torchsleuth.messages import all_messages
from torchsleuth.rule import all_rules

LOGS = pathlib.Path(__file__).parent / "logs"
SELECT = "IndexError: select(): index 1 out of range for tensor of size [1, 32, 100] at dimension 0"


def said(text: str) -> str:
    """The answer on one line, so that wrapping does not matter."""
    answer = explain(text)
    assert answer.answered, str(answer)
    return " ".join(str(answer).split())


def command(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchsleuth", "explain", *arguments], input=given, stdin=None if given is not None else subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


# The titles of the five documents, as questions.


def test_select_in_a_backward_pass() -> None:
    answer = said("What causes the IndexError: select(): index 1 out of range for tensor of size '1, 32, 100' during a PyTorch backward pass?")
    assert "Dimension 0 of a tensor of size [1, 32, 100] has 1 element, so the only legal indices are 0 and -1; the code asked for 1." in answer
    assert "of these sizes only dimension 0 can refuse index 1" in answer
    assert "otherwise the line is in the forward pass and backward has no part in it" in answer
    assert "The backward of `sum` expands the gradient and indexes nothing." in answer


def test_index_error_in_bert() -> None:
    answer = said("What is causing the IndexError in a BERT model?")
    assert "a token id at or past the vocabulary size" in answer.lower()
    assert "max_position_embeddings" in answer and "type_vocab_size" in answer
    assert "A mask is multiplied or added, not used as an index" in answer


def test_reducing_in_a_loop() -> None:
    answer = said("How to reduce a 2D PyTorch tensor to 1D and resolve a for-loop training error?")
    assert "`x.sum(dim=1)`" in answer
    assert "gives the same values and the same gradient" in answer


def test_modifying_unpacked_tensors() -> None:
    answer = said("How to fix PyTorch errors when modifying unpacked tensors?")
    assert "modified by an inplace operation" in answer and "one of several views" in answer and "leaf" in answer
    assert "On a clone that nothing has saved it runs, and the gradient is right" in answer


def test_index_put_does_not_fail_that_way() -> None:
    answer = said("Why does PyTorch's `index_put_` fail with a 'derivative not implemented' error for indices?")
    assert "does not fail this way" in answer
    assert "no program gets \"derivative not implemented\" for the indices" in answer
    assert "a leaf Variable that requires grad is being used in an in-place operation" in answer
    assert explain("Why does PyTorch's `index_put_` fail with a 'derivative not implemented' error for indices?").rule == "inplace-on-leaf"


# Messages in the forms people paste them.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SELECT, "has 1 element, so the only legal indices are 0 and -1"),
        (SELECT.removeprefix("IndexError: "), "has 1 element"),
        (SELECT.lower(), "has 1 element"),
        ("select(): index 5 out of range for tensor of size (3, 4) at dimension 1", "legal indices are 0 to 3"),
        ("RuntimeError: The size of tensor a (5) must match\n the size of tensor b (6) at non-singleton dimension 1", "has 5 and the second"),
        ("mat1 and mat2 shapes cannot be multiplied (32x512 and 2048x10)", "`nn.Linear(in_features=2048, out_features=10)`"),
        ("mat1 and mat2 shapes cannot be multiplied", "The text gives no numbers that fit, so this is read as an example"),
        ("why do I get 'grad can be implicitly created only for scalar outputs'?", "one weight each"),
        ("shape '[32, 10]' is invalid for input of size 70", "a last partial batch of 7 rows meets a hard-coded batch size of 32"),
        ("Target -1 is out of bounds.", "only `ignore_index` is ignored, and its default is -100"),
        ("Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 224, 224, 3] to have 3 channels, but got 224 channels instead", "channels-last"),
        ("one of the variables needed for gradient computation has been modified by an inplace operation: [torch.cuda.FloatTensor [64, 1]], which is output 0 "
         "of AsStridedBackward0, is at version 2; expected version 1 instead.", "usually the transposed weight of a linear layer"),
        ("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking argument for argument index in method "
         "wrapper_CUDA__index_select)", "the indices (an embedding's ids, for instance)"),
        ("RuntimeError: CUDA error: device-side assert triggered", "That line is innocent."),
        ("../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
         "RuntimeError: CUDA error: device-side assert triggered", "an embedding or `index_select` with an id at or past the size of its table"),
        ("TypeError: new(): invalid data type 'str'", "A tensor was indexed with a string"),
        ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only if you trust the "
         "source of the checkpoint.\n\tWeightsUnpickler error: Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default.", "This file names `argparse.Namespace`"),
        ("ValueError: Expected parameter scale (Tensor of shape (2,)) of distribution Normal(loc: torch.Size([2]), scale: torch.Size([2])) to satisfy the constraint "
         "GreaterThan(lower_bound=0.0), but found invalid values:\ntensor([-1.,  1.])", "must be greater than 0.0"),
        ("ValueError: Expected parameter loc (Tensor of shape (2, 2)) of distribution MultivariateNormal(loc: torch.Size([2, 2]), covariance_matrix: torch.Size([2, 2, 2])) "
         "to satisfy the constraint IndependentConstraint(Real(), 1), but found invalid values:\ntensor([[nan, nan]])", "NaN came out of the network"),
        ("ValueError: Expected value argument (Tensor of shape (8,)) to be within the support (IntegerInterval(lower_bound=0, upper_bound=3)) of the distribution "
         "Categorical(logits: torch.Size([8, 4])), but found invalid values:\ntensor([4])", "between 0 and 3, and whole"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "This build of torch has no code for this GPU."),
        ("RuntimeError: CUDA error: out of memory", "the driver's own refusal"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 17.69 GB, other allocations: 400.77 MB, max allowed: 18.13 GB). Tried to allocate 64.00 MB on private pool.",
         "torch holds 17.69 GB there, 400.77 MB are other allocations, and 18.13 GB is the limit."),
        ("NotImplementedError: The operator 'aten::_ctc_loss' is not currently implemented for the MPS device.", "torch has no MPS code for this operator."),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes.", "Main memory has no 8 GiB left."),
        ("RuntimeError: \"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for 'Int'", "`targets.long()`"),
        ("RuntimeError: shape '[-1, 784]' is invalid for input of size 614400", "likely first 1. The size after convolutions"),
        ("RuntimeError: Error(s) in loading state_dict for DataParallel:\n\tMissing key(s) in state_dict: \"module.fc.weight\".\n\tUnexpected key(s) in state_dict: \"fc.weight\".",
         "Load into what is wrapped: `model.module.load_state_dict(state)`"),
        ("RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: \"fc.weight\".\n\tUnexpected key(s) in state_dict: \"module.fc.weight\".",
         "`{k.removeprefix('module.'): v for k, v in state.items()}`, or save `model.module.state_dict()`."),
        ("torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: got RuntimeError('a and b must have same reduction dim, but got [8, 10] X [12, 5].')",
         "10 features arrive where 12 are expected."),
        ("ValueError: out_channels must be divisible by groups", "no multiple of it"),
        ("ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True' 'truncation=True' to have batched tensors "
         "with the same length.", "do not form a rectangle"),
        ("ValueError: Asking to pad but the tokenizer does not have a padding token. Please select a token to use as `pad_token`", "resize_token_embeddings"),
        ("AttributeError: 'DataParallel' object has no attribute 'fc'", "`model.module.fc`"),
        ("AttributeError: 'collections.OrderedDict' object has no attribute 'eval'", "a dictionary of weights is no model".capitalize()),
        ("AttributeError: 'CausalLMOutputWithPast' object has no attribute 'shape'", "likely first 1. The object is of another kind"),
        ("ValueError: Expected more than 1 spatial element when training, got input size torch.Size([2, 4, 1])", "The batch has no part in it."),
        ("RuntimeError: derivative for aten::grid_sampler_2d_backward is not implemented", "A second derivative is asked for"),
        ("[rank1]:[E1118 10:23:45.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1048576, "
         "NumelOut=1048576, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.", "waited 600 seconds in ALLREDUCE for the others"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "It knows CUDA up to 12.2."),
        ("_pickle.UnpicklingError: invalid load key, '<'.", "it is a web page"),
        ("NotImplementedError: \"bincount_cpu\" not implemented for 'Float'", "`.long()`"),
        ("AssertionError: No inf checks were recorded for this optimizer.", "every `.grad` is None"),
        ("ModuleNotFoundError: No module named 'torch'", "the python that runs has no torch".capitalize()),
        ("AttributeError: partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular import)", "A file `torch.py`"),
        ("ImportError: /x/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "built for another torch"),
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? "
         "Error 803: system has unsupported display driver / cuda driver combination", "a restart is missing"),
        ("torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version "
         "2.19.3\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`"),
        ("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).", "did not answer within 60 seconds"),
        ("torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 0 (pid: 3213) of binary: /usr/bin/python", "Main memory ran out"),
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.", "needs 147,456 bytes of shared memory, and this GPU has 101,376"),
        ("RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.", "cudagraph_mark_step_begin"),
        ("UserWarning: std(): degrees of freedom is <= 0.", "was taken of one value, and is NaN"),
        ("TypeError: Net.__init__() got an unexpected keyword argument 'hidden'", "`Net` takes no `hidden`"),
        ("AttributeError: Can't get attribute 'Net' on <module '__main__' from 'eval.py'>", "the whole model was saved"),
    ],
)  # fmt: skip
def test_messages(given: str, expected: str) -> None:
    assert expected in said(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("RuntimeError: invalid argument 2: size '[-1 x 400]' is invalid for input with 179776 elements at /pytorch/aten/src/TH/THStorage.cpp:80", "179776 / 400"),
        ("RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self' in call to _th_mm", "tensors on cuda and cpu"),
        ("RuntimeError: Expected object of backend CUDA but got backend CPU for argument #4 'mat1'", "the input of a linear layer"),
        ("RuntimeError: Input, output and indices must be on the current device", "tensors on the GPU and the CPU"),
        ("TypeError: can't convert CUDA tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.", "x.detach().cpu().numpy()"),
        ("TypeError: batch must contain tensors, numbers, dicts or lists; found <class 'NoneType'>", "forgot `return`"),
        ("RuntimeError: index out of range: Tried to access index 10 out of table with 9 rows. at /pytorch/aten/src/TH/generic/THTensorEvenMoreMath.cpp:418", "The id was 10"),
        ("RuntimeError: Assertion `cur_target >= 0 && cur_target < n_classes' failed.  at /pytorch/aten/src/THNN/generic/ClassNLLCriterion.c:94", "take class numbers 0 to C-1"),
        ("RuntimeError: Expected object of type torch.FloatTensor but found type torch.cuda.FloatTensor for argument #2 'mat2'", "tensors on the GPU and the CPU"),
        ("RuntimeError: a leaf Variable that requires grad has been used in an in-place operation.", "An in-place write into a tensor whose gradient you asked for"),
        ("RuntimeError: bool value of Tensor with no values is ambiguous", "(x > 0).any()"),
        ("RuntimeError: Sizes of tensors must match except in dimension 1. Got 13 and 14 in dimension 2 (The offending index is 1)", "Tensor number 1 (counted from 0) has 14 in dimension 2, the first one 13."),
        ("RuntimeError: invalid argument 0: Sizes of tensors must match except in dimension 0. Got 224 and 256 in dimension 2 at /pytorch/aten/src/TH/generic/THTensor.cpp:689",
         "Another tensor has 256 in dimension 2"),
        ("RuntimeError: Expected 4-dimensional input for 4-dimensional weight [64, 3, 3, 3], but got 3-dimensional input of size [3, 224, 224] instead",
         "The batch dimension is missing (this release takes batches only): `x.unsqueeze(0)`."),
        ("one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [10, 128]], which is output 0 of TBackward, is at "
         "version 2; expected version 1 instead.", "likely first 1. `optimizer.step()` between"),
        ("RuntimeError: Expected 3-dimensional tensor, but got 2-dimensional tensor for argument #1 'batch1' (while checking arguments for bmm)", "two batches of matrices"),
    ],
)
def test_messages_of_earlier_releases(given: str, expected: str) -> None:
    assert expected in re.sub(r"\s+", " ", str(explain(given)))


@pytest.mark.parametrize(
    "given",
    [
        "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "RuntimeError: CUDA error: invalid resource handle",
        "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
    ],
)
def test_what_is_not_known_is_not_another_mistake(given: str) -> None:
    answer = explain(given)
    assert not answer.answered and not answer.rule
    assert "without torch.compile raises it" not in " ".join(str(answer).split())


def test_a_missing_operator_is_no_wrong_target() -> None:
    assert explain("NotImplementedError: The operator 'aten::_ctc_loss' is not currently implemented for the MPS device.").rule == ""


@pytest.mark.parametrize("given", ["'Net' object has no attribute 'conv1'", "'Subset' object has no attribute 'classes'", "'str' object has no attribute 'items'"])
def test_an_attribute_that_is_not_there_is_no_word_about_tensors(given: str) -> None:
    answer = explain(f"AttributeError: {given}")
    assert answer.answered and not answer.rule and "where a tensor is wanted" not in " ".join(str(answer).split())


def test_a_name_that_begins_a_sentence_keeps_its_small_letter() -> None:
    assert "\ntorch.float32 where torch.float16" in str(explain("RuntimeError: expected scalar type Half but found Float"))


def test_a_whole_traceback_names_the_line() -> None:
    answer = said((LOGS / "forward.txt").read_text())
    assert "`nn.Linear(in_features=128, out_features=10)` getting inputs whose last size is 64" in answer
    assert "the innermost line that is not a library's is train.py, line 14, in forward: `return self.head(x)`" in answer


def test_a_traceback_from_a_custom_backward() -> None:
    answer = said((LOGS / "custom_backward.txt").read_text())
    assert "raised while backward ran, in your own code below it (a `backward` or a hook): attention.py, line 20, in backward" in answer


def test_a_notebooks_traceback_names_the_cell() -> None:
    answer = said((LOGS / "notebook.txt").read_text())
    assert "Cell In[4], line 9, in step: `loss = criterion(model(x), y)`" in answer
    assert "The loss compares row by row: the scores have 32 rows (dimension 0), the targets 16." in answer


def test_pytests_output_names_the_line() -> None:
    answer = said((LOGS / "pytest.txt").read_text())
    assert "70 elements cannot be arranged as [32, 10]" in answer
    assert "net.py, line 12" in answer


def test_errors_passed_on_by_workers_and_compilers() -> None:
    assert "A DataLoader worker (process 0) raised it" in said((LOGS / "loader.txt").read_text())
    assert "`stack` got [3] and [5]" in said((LOGS / "loader.txt").read_text())
    compiled = said((LOGS / "compile.txt").read_text())
    assert "torch.compile passes it on" in compiled and "shapes [4, 5] and [4, 6] do not broadcast" in compiled.lower()


def test_the_error_a_program_died_of_counts_not_one_it_survived() -> None:
    log = f"{SELECT}\nretrying\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    x.view(7, 3)\nRuntimeError: shape '[7, 3]' is invalid for input of size 20\n"
    assert "20 elements cannot be arranged as [7, 3]" in said(log)


def test_a_warning_is_no_cause_of_an_error_that_is_not_known() -> None:
    answer = explain("train.py:12: UserWarning: std(): degrees of freedom is <= 0. Correction should be strictly less.\nTraceback (most recent call last):\n"
                     '  File "/home/u/train.py", line 14, in <module>\n    load(x)\nValueError: the file of prices is older than a day')  # fmt: skip
    assert not answer.answered


def test_a_launchers_own_traceback_is_not_the_programs() -> None:
    answer = said((LOGS / "launched.txt").read_text())
    assert "512 features arrive where 2048 are expected" in answer and "train.py, line 31, in main" in answer and "bin/torchrun" not in answer


def test_the_warning_of_a_loss_that_broadcasts_is_not_taken_for_the_error_of_one_that_does_not() -> None:
    answer = said("UserWarning: Using a target size (torch.Size([4])) that is different to the input size (torch.Size([4, 1])). This will likely lead to incorrect results due to "
                  "broadcasting. Please ensure they have the same size.")  # fmt: skip
    assert "This is a warning" in answer and "does not broadcast" not in answer


def test_a_log_without_an_error_is_not_matched_by_its_words() -> None:
    log = "".join(f"epoch {i}: loss nan, gradient None, bert index error rate 0.{i}\n" for i in range(40))
    assert not explain(log).answered


# Names, lists, and not knowing.


def test_every_rule_by_name() -> None:
    for rule in all_rules():
        answer = explain(rule.name)
        summaries = [other.page().summary for other in all_rules() if other.name == rule.name]
        assert answer.answered and answer.rule == rule.name and answer.title in summaries
        assert explain(rule.name.replace("-", "_").upper()).rule == rule.name


def test_every_reader_by_name_or_fragment() -> None:
    for message in all_messages():
        assert explain(message.example).answered, message.name
        assert explain(message.name).answered, message.name


def test_the_list_names_every_rule() -> None:
    listed = str(explain())
    assert all(rule.name in listed for rule in all_rules())


@pytest.mark.parametrize("text", ["how do I bake bread", "KeyError: 'loss'", "ValueError: the frobnicator is upside down", "?", "xyzzy", "tensor"])
def test_not_knowing_is_said(text: str) -> None:
    answer = explain(text)
    assert not answer.answered and not answer.sections and not answer.rule
    assert "no answer" in str(answer)


def test_a_misspelt_rule_is_offered() -> None:
    answer = explain("inplace-saved-tensr")
    assert not answer.answered
    assert "inplace-saved-tensor" in str(answer)


@pytest.mark.parametrize("text", ["narrow() cannot be applied to a 0-dim tensor.", "RuntimeError: masked_scatter_ only supports boolean masks, but got mask with dtype Float"])
def test_another_message_that_shares_words_is_not_taken_for_a_known_one(text: str) -> None:
    assert not explain(text).answered or "example" not in str(explain("RuntimeError: " + text.removeprefix("RuntimeError: ")))


def test_strange_input_never_fails() -> None:
    for text in ("a" * 60_000, "9" * 60_000, "[" * 60_000, "size of tensor a (5)\n" * 20_000, "", " \n ", "\x00\x1b[31m", "[" * 5000, "Traceback (most recent call last):", "IndexError:", "RuntimeError: " + "9" * 400, "é日本語 🙂", "%s {0} {a}",
                 "select(): index 1 out of range for tensor of size [] at dimension 0", "shape '[]' is invalid for input of size 0",
                 "shape '[0, -1]' is invalid for input of size 0", "too many indices for tensor of dimension 0",
                 "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got -2)"):  # fmt: skip
        str(explain(text))


def test_wrong_numbers_never_fail() -> None:
    draw = random.Random(3)
    for message in all_messages():
        for _ in range(2):
            text = re.sub(r"-?\d+", lambda found: draw.choice(("0", "1", "7", "512", "-1", "-3", "1000000000000", found[0])), message.example)
            text = re.sub(r"\[[^\]]*\]", lambda found: draw.choice((found[0], found[0], "[]", "[3]", "[2, 3, 4, 5]")), text)
            assert str(explain(text))


# The command.


def test_the_command_answers_without_torch() -> None:
    code = "import sys; from torchsleuth.cli import main; main(['explain', sys.argv[1]]); print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, SELECT], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr
    assert "the code asked for 1" in " ".join(done.stdout.split())


def test_the_command_reads_standard_input_and_tells_by_its_status() -> None:
    answered = command(given=(LOGS / "forward.txt").read_text())
    assert answered.returncode == 0 and "64 features arrive where 128 are expected" in answered.stdout
    unknown = command("how do I bake bread")
    assert unknown.returncode == 1 and "no answer" in unknown.stdout
    listed = command()
    assert listed.returncode == 0 and "inplace-saved-tensor" in listed.stdout and "\x1b" not in listed.stdout


def test_the_function_is_exposed() -> None:
    answer = torchsleuth.explain(SELECT)
    assert answer.programs and "x.select(0, 1)" in answer.programs[0]
    assert json.dumps(str(answer))
