"""Prints src/eventtensor/device/cuda/constants.cuh."""

from eventtensor.codegen.cuda.constants import header

if __name__ == "__main__":
    print(header(), end="")
