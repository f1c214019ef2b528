"""One file per operator: descriptor, support table, check, plan."""
