"""All faults. A new one is a function with `@fault` in one of these modules, or in a module named here."""

from faults import clock as clock
from faults import combined as combined
from faults import commits as commits
from faults import database as database
from faults import disk as disk
from faults import failover as failover
from faults import inputs as inputs
from faults import liveness as liveness
from faults import network as network
from faults import notices as notices
from faults import processes as processes
from faults import soak as soak
from faults import storms as storms
from faults.suite import FAULTS as FAULTS
