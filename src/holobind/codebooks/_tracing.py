"""Whether tensors have values: those of torch.compile, torch.export, torch.func and the meta device have none."""

import torch
from torch import Tensor


def has_values(*tensors: Tensor) -> bool:
    """Whether Python code may read these tensors.

    Where it may not, values are not checked, compiled kernels are not called, and everything is computed by torch's own
    differentiable operations. Subclasses of Tensor (fake or distributed tensors) take that way, too.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return all(type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta for tensor in tensors)


def drawn_on(module: torch.nn.Module, name: str, device: torch.device) -> Tensor:
    """A module's tensor that a seed defines and that is neither parameter nor buffer, on a device; it moves there.

    It keeps its values where the device has none (meta): a copy is returned.
    """
    tensor: Tensor = getattr(module, name)
    if tensor.device == device:
        return tensor
    moved = tensor.to(device)
    if has_values(moved):
        setattr(module, name, moved)
    return moved
