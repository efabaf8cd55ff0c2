"""What would go wrong on a GPU, found without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")
"""A device whose tensors have shapes but no contents, so nothing can be read from it."""
_WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal", "unique_dim")
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class NoWaiting(TorchDispatchMode):
    """Fails if the host would have to wait for a GPU: for a tensor's value, or a shape that depends on one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in _WAITING, name
        if name in _INDEXING:
            assert not any(index is not None and index.dtype == torch.bool for index in args[1])
        return func(*args, **(kwargs or {}))


class NoMixing(NoWaiting):
    """Also fails if an operation mixes devices or copies between them, apart from CPU tensors of one number."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.device.type == "meta" or tensor.ndim}
        devices |= {leaf.type for leaf in leaves if isinstance(leaf, torch.device) and tensors}
        assert len(devices) < 2, f"{func} mixes devices"
        if func.overloadpacket.__name__ == "_fused_adam_":  # PyTorch has no shapes-only version; it returns nothing
            return None
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextlib.contextmanager
def only_on_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if what runs on `META` waits for it, reads from it or mixes it with the CPU.

    PyTorch has no autocast for this device; switching it off moves nothing between devices.
    """
    with monkeypatch.context() as patch, NoMixing():
        patch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
        yield
