"""The pods of deploy/kubernetes, run by podman with the users, capabilities and mounts that they name."""
