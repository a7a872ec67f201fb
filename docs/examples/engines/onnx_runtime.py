"""Classify 1,024 images with ONNX Runtime: python onnx_runtime.py MODEL.onnx --threads 2 --batch 8."""

import argparse
import json

import numpy
import onnxruntime

words = argparse.ArgumentParser()
words.add_argument("model")
words.add_argument("--threads", type=int, default=0, help="0: one per core, the default")
words.add_argument("--batch", type=int, default=1)
words.add_argument("--spin", default="1", help="whether idle threads spin, the default")
given = words.parse_args()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = given.threads
options.add_session_config_entry("session.intra_op.allow_spinning", given.spin)
session = onnxruntime.InferenceSession(given.model, options, ["CPUExecutionProvider"])
images = numpy.random.default_rng(0).random((1024, 3, 32, 32), dtype=numpy.float32)
for start in range(0, len(images), given.batch):
    session.run(None, {"images": images[start : start + given.batch]})
print(json.dumps({"images": len(images)}))
