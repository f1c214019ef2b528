"""The first days of a GPU: steps with limits, whose results are kept in a folder."""
