"""The fake Kafka of the simulated world. `Broker` is all a simulation needs."""

from .broker import Broker, Seen
from .errors import BrokerDown, ProcessGone, Refused
from .foreign import Foreign
from .process import Process
from .transactions import Fenced

__all__ = ["Broker", "BrokerDown", "Fenced", "Foreign", "Process", "ProcessGone", "Refused", "Seen"]
