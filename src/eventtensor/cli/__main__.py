"""python -m eventtensor.cli"""

from . import main

main()
