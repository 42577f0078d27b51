"""A script for two processes, of which the second dies while they train: torchrun dying_process.py DATA OUT."""

import os
import sys
import time

from holobind.cli.main import main
from holobind.ridge_knn import fit


def die(*_):
    time.sleep(1)  # until the first process waits for this one
    os._exit(3)


if __name__ == "__main__":
    sys.argv = ["holobind", "train", sys.argv[1], "--out", sys.argv[2]]
    if os.environ["RANK"] == "1":
        fit.estimate = die
    main()
