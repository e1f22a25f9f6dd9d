"""Screen 3: the partition groups, and what another TBT target would make of them."""
