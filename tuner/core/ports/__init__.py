"""Ports: the interfaces of policies, drivers and stores, one module per subject."""

from tuner.core.ports.hardware import *
from tuner.core.ports.policies import *
from tuner.core.ports.rows import *
