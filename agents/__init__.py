"""Device agents: turn knobs and read meters on one machine. (Not LLM agents.)"""
