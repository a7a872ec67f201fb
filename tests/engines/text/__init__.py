"""A text engine with real decoding: a target, drafts that propose, and exact acceptance.

`python -m tests.engines.text.training` trains its models.
"""
