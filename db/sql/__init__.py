"""The memory over SQLAlchemy: SQLite or PostgreSQL."""
