"""Test suites for stores and adapters. Import their names from ``sayso.testing``.

Read ``suite`` for stores, with ``world`` and ``checks``; for adapters ``adapter_harness``,
``adapter_steps``, ``adapter_suite`` and ``adapter_escapes``.
"""

import sys

if "pytest" in sys.modules:
    # pytest rewrites bare asserts there, so that a failure shows the values.
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module}" for module in ("suite", "world", "checks")),
        *(f"{__name__}.adapter_{part}" for part in ("suite", "steps", "escapes")),
    )
