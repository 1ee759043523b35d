"""What the tests in guest machines share. They assert what happens in the guest, never how long it takes."""

from __future__ import annotations

import os

import pytest

import guest_packages
from machine import Machine


@pytest.fixture(scope="session")
def guest() -> type[Machine]:
    """The class of guest machines, once what they are made of is here. Without it tests are skipped; in CI only for want of a mirror."""
    try:
        guest_packages.unpacked()
    except guest_packages.Unavailable as why:
        if os.environ.get("CI") and not isinstance(why, guest_packages.OutOfReach):
            pytest.fail(f"guest machines cannot be had: {why}")
        pytest.skip(f"guest machines cannot be had: {why}")
    return Machine
