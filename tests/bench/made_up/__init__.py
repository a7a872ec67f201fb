"""Made-up surfaces: devices and workloads by independent formulas, to which no tuner was fitted.

The formulas follow general knowledge of hardware, not the optimiser's laws, and have shapes that these
lack: queues that collapse, sockets, tiles, throttling, switches, knobs with meaningless names. Nothing
here is measured; a tuner's gain on them shows whether its decisions generalise.
"""
