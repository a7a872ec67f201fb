"""What keeps a database well: backups, checks, and what is deleted after a while."""
