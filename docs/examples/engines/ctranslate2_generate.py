"""Write 1,024 texts of 24 tokens with CTranslate2: python ctranslate2_generate.py FOLDER --threads 1."""

import argparse
import json

import ctranslate2

words = argparse.ArgumentParser()
words.add_argument("model")
words.add_argument(
    "--threads", type=int, default=0, help="per replica; 0: one per core, the default"
)
words.add_argument("--replicas", type=int, default=1)
words.add_argument("--batch", type=int, default=1, help="texts at once")
words.add_argument("--type", default="default", help="of the weights: default, int8, float32")
given = words.parse_args()
generator = ctranslate2.Generator(
    given.model,
    device="cpu",
    compute_type=given.type,
    inter_threads=given.replicas,
    intra_threads=given.threads,
)
prompts = [["<s>", f"t{n}"] for n in range(1024)]
texts = generator.generate_batch(
    prompts, max_batch_size=given.batch, min_length=24, max_length=24, sampling_topk=1
)
print(json.dumps({"tokens": sum(len(text.sequences_ids[0]) for text in texts)}))
