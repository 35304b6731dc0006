"""The tasks that label: each with its reader, its rows, its answers and its measure."""
