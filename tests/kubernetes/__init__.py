"""The examples in deploy/kubernetes, as kustomize renders them: what they grant, and what runs by them."""
