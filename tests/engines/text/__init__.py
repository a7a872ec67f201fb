"""A text engine that really decodes: a target, drafts that propose, and exact acceptance.

`python -m tests.engines.text.serve` serves it; `…text.training` trains its models.
"""
