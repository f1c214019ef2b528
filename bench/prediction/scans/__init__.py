"""The problems for which an operator's planner is compared with the predicted times of its paths."""
