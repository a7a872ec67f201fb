"""The vocabulary of jouletune: standard library only, frozen values, small ports, pure rules."""

from tuner.core.access import *
from tuner.core.bill import *
from tuner.core.budgets import *
from tuner.core.described import *
from tuner.core.devices import *
from tuner.core.errors import *
from tuner.core.estimates import *
from tuner.core.evidence import *
from tuner.core.goals import *
from tuner.core.knobs import *
from tuner.core.measurements import *
from tuner.core.plans import *
from tuner.core.policies import *
from tuner.core.quantities import *
from tuner.core.savings import *
from tuner.core.series import *
from tuner.core.studies import *
from tuner.core.trials import *
from tuner.core.witnesses import *
from tuner.error_codes import error_of as error_of
from tuner.errors import *
