"""Servers that the contracts need: one for all tests of a process."""

from collections.abc import Iterator

import pytest
from tests.contracts.postgres_cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster
