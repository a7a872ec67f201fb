"""The messages between agents, operators and the tuner. Values of `tuner.core` are sent unchanged.

Every message carries `protocol`. The tuner serves its own version and the one before, ignores unknown
fields, and answers every other version with 426.
"""

from tuner.wire.agents import *
from tuner.wire.budget_views import *
from tuner.wire.fleet import *
from tuner.wire.message import *
from tuner.wire.operators import *
from tuner.wire.studies import *
