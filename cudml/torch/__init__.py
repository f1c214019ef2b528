"""`topk` and `nn.GRU` of PyTorch, computed by cudml: CUDA tensors on their GPU, CPU tensors by the emulator.

Both are operators of `torch.library`, in `torch.ops.cudml`, so `torch.compile` and `torch.export` trace them.
Outputs are PyTorch's, and PyTorch's current stream orders the work. There are no gradients: a tensor that
requires one is refused.
"""

from cudml.errors import not_installed

try:
    from cudml.torch.functions import topk
    from cudml.torch.layers import GRU, convert
    from cudml.torch.translations import onnx_translations
except ModuleNotFoundError as error:
    raise not_installed("torch", "torch", error) from None

__all__ = ["GRU", "convert", "onnx_translations", "topk"]
