"""`top_k` and `gru` for JAX arrays, under `jax.jit`, `jax.vmap` and `jax.export`.

They are XLA's custom calls `cudml_top_k` and `cudml_gru`, and run on XLA's stream, in XLA's buffers. A CPU's
arrays run on the emulator. There are no gradients.
"""

from cudml.errors import not_installed

try:
    from cudml.jax.functions import gru, top_k
except ModuleNotFoundError as error:
    raise not_installed("jax", "jax", error) from None

__all__ = ["gru", "top_k"]
