"""A race: its plan, its results, its folder."""
