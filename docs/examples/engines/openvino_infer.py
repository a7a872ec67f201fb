"""Classify 4,096 images with OpenVINO: python openvino_infer.py MODEL.onnx --hint LATENCY --batch 8."""

import argparse
import json

import numpy
import openvino

words = argparse.ArgumentParser()
words.add_argument("model")
words.add_argument("--hint", default="LATENCY", help="LATENCY (the default) or THROUGHPUT")
words.add_argument("--threads", type=int, default=0, help="0: as the hint has it")
words.add_argument("--streams", type=int, default=0, help="0: as the hint has it")
words.add_argument("--batch", type=int, default=1)
given = words.parse_args()
config = {"PERFORMANCE_HINT": given.hint}
config |= {"INFERENCE_NUM_THREADS": given.threads} if given.threads else {}
config |= {"NUM_STREAMS": given.streams} if given.streams else {}
core = openvino.Core()
model = core.read_model(given.model)
model.reshape([given.batch, 3, 32, 32])
compiled = core.compile_model(model, "CPU", config)
images = numpy.random.default_rng(0).random((4096, 3, 32, 32), dtype=numpy.float32)
queue = openvino.AsyncInferQueue(compiled)
for start in range(0, len(images), given.batch):
    queue.start_async({0: images[start : start + given.batch]})
queue.wait_all()
print(json.dumps({"images": len(images)}))
