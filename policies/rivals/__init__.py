"""Others' tuners, rebuilt as policies, so that the comparison is of judgement."""
