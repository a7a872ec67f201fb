"""What a release left behind: its databases, its messages and its agent's files, as it wrote them."""
