"""Made-up surfaces: devices and workloads by formulas of their own, to judge tuners by what nobody fitted.

Written from general knowledge of hardware and not from the optimiser's laws, with the shapes that these
leave out: queues that collapse, sockets, tiles, throttling, switches, knobs with meaningless names.
Nothing here is measured; what a tuner gains on them says whether its judgement is general.
"""
