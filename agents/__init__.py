"""Device agents: they set knobs and read meters on one machine. (Not LLM agents.)"""
