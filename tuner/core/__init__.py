"""The vocabulary of jouletune: standard library only, frozen values, small ports, pure rules."""

from tuner.core.access import *
from tuner.core.baselines import *
from tuner.core.bill import *
from tuner.core.decisions import *
from tuner.core.devices import *
from tuner.core.errors import *
from tuner.core.evidence import *
from tuner.core.explanations import *
from tuner.core.goals import *
from tuner.core.hours import *
from tuner.core.knobs import *
from tuner.core.measurements import *
from tuner.core.merging import *
from tuner.core.plans import *
from tuner.core.plausibility import *
from tuner.core.ports import *
from tuner.core.quantities import *
from tuner.core.readings import *
from tuner.core.savings import *
from tuner.core.studies import *
from tuner.core.tails import *
from tuner.core.trials import *
