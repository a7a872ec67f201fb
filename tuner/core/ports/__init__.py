"""Ports: the interfaces of policies, drivers and stores, one module per subject."""

from tuner.core.ports.access import *
from tuner.core.ports.fleet import *
from tuner.core.ports.hardware import *
from tuner.core.ports.log import *
from tuner.core.ports.policies import *
from tuner.core.ports.rows import *
from tuner.core.ports.store import *
from tuner.core.ports.studies import *
from tuner.core.ports.trials import *
