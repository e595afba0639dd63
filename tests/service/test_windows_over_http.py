"""Windows in the interface: declared, shown, changed, refused."""

from __future__ import annotations

import pytest

from tests.service.http_calls import CAMPAIGN

PLACEHOLDER = CAMPAIGN
