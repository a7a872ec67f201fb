"""The frozen data of releases: databases, messages and agents' files, as each release wrote them."""
