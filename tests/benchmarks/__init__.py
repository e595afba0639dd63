"""Speed of the library, beside Vowpal Wabbit: `make bench`."""

import os

# Read once, when numpy loads: small matrices are slower on several threads, and VW uses one.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
