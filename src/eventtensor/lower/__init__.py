"""From a plan to kernel IR, the same for every target but for the number of threads of a worker."""
