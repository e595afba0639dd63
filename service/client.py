"""The client under its old name: everything that `cbwk_client` exports."""

from cbwk_client import *  # noqa: F403
from cbwk_client import __all__  # noqa: F401
