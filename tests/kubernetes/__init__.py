"""The examples in deploy/kubernetes, rendered by kustomize: their permissions, and their pods."""
