"""Defects planted in a scratch copy of the checkout, one at a time: tests must fail with the right error."""
