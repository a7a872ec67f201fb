"""How much the studies of like devices help a new one."""
