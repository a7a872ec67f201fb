"""The messages between agent, operator and tuner. Values of the vocabulary travel as they are.

Every message carries `protocol`. The tuner serves its own version and the one before, ignores
fields it does not know, and answers 426 to anything else.
"""

from tuner.wire.agents import *
from tuner.wire.budget_views import *
from tuner.wire.fleet import *
from tuner.wire.message import *
from tuner.wire.operators import *
from tuner.wire.studies import *
