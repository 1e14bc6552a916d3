"""Messages about checkpoint files that cannot be read: cut off, not what they seem, written by something else."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads


@reads(
    r"PytorchStreamReader failed (?:reading zip archive|locating file)",
    r"invalid load key, '(?P<key>[^']+)'",
    r"Invalid magic number; corrupt file\?",
    r"inline_container\.cc:\d+\] ?\.? ?(?:file|unexpected pos)",
    r"unexpected EOF, expected \d+ more bytes\. The file might be corrupted",
    r"EOFError: Ran out of input",
    r"^Ran out of input$",
    example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
)
def unreadable_file(found: Found) -> Reading:
    key = found["key"] if found.has("key") else ""
    writing = "unexpected pos" in found.match[0] or "inline_container" in found.match[0] and "file" not in found.match[0]
    if writing:
        return Reading(
            "a checkpoint could not be written to its end",
            "While `torch.save` wrote, the file had another length than what was written: the system took less than it was given.",
            ("The disk, or your quota on it, is full.", "A network file system failed, or two processes write the same file (save on rank 0 only)."),
            None,
            ("`df -h` and the quota; write to another name and rename it when it is complete: the checkpoint before stays whole.",),
        )
    kind = {
        "<": "The file begins with `<`: it is a web page (an error or login page), not the weights.",
        "v": "The file begins with `v`: most likely the pointer of git LFS (`version https://git-lfs...`), not the weights: `git lfs pull`.",
        "{": "The file begins with `{`: JSON, not a pickle.",
        "\\x1f": "The file is compressed by gzip.",
    }.get(key, "")
    return Reading(
        "the file is not a whole checkpoint",
        "`torch.load` reads a zip archive (or, from before PyTorch 1.6, a pickle), and this file is none, or it ends too early." + (f" {kind}" if kind else ""),
        (
            "A download or a copy was broken off; look at the size of the file." if not kind else "The download gave another file than was meant.",
            "The training was killed, or the disk was full, while the checkpoint was written.",
            "It is of another kind: `.safetensors` (`safetensors.torch.load_file`), TensorFlow, a git LFS pointer, an empty file.",
        ),
        raising("import io", "torch.load(io.BytesIO(b'PK\\x03\\x04' + b'a' * 20))", raises="PytorchStreamReader failed reading zip archive"),
        ("Remove it and fetch it again (caches: `~/.cache/torch`, `~/.cache/huggingface`); load an earlier checkpoint.",),
    )
