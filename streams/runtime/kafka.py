"""The ports over confluent-kafka: only ``kafka*.py`` of the runtime know it."""

from __future__ import annotations

import logging
import threading

from .errors import Aborted, RuntimeFault
from .kafka_admin import ConfluentAdmin
from .kafka_consumers import ConfluentGroupConsumer, ConfluentReader
from .kafka_producers import ConfluentPlainProducer, ConfluentTransactionalProducer
from .kafka_settings import ClientSettings
from .settings import RuntimeSettings

log = logging.getLogger(__name__)


class ConfluentKafka:
    """Makes the clients of one deployment."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = ClientSettings(settings)
        self._patience = settings.commit_patience_ms / 1000
        self._connect = settings.connect_timeout_ms / 1000

    def group_consumer(self, group: str, client_id: str) -> ConfluentGroupConsumer:
        return ConfluentGroupConsumer(self._settings, group, client_id)

    def transactional_producer(self, transactional_id: str) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(self._settings, transactional_id, self._patience)

    def plain_producer(self, client_id: str) -> ConfluentPlainProducer:
        return ConfluentPlainProducer(self._settings, client_id)

    def reader(self, client_id: str) -> ConfluentReader:
        return ConfluentReader(self._settings, client_id)

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._settings, self._connect)

    def abort_open_transaction(self, transactional_id: str) -> None:
        def take() -> None:
            producer = self.transactional_producer(transactional_id)
            try:
                producer.start()
                log.info("aborted what %s had left open", transactional_id)
            except (Aborted, RuntimeFault) as e:
                log.warning("could not abort what %s left open: %s", transactional_id, e)
            finally:
                producer.close()

        threading.Thread(target=take, name=f"abort {transactional_id}", daemon=True).start()
