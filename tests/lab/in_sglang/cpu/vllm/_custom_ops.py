"""The three functions, in plain PyTorch; all work in place."""

from __future__ import annotations

import torch


def rms_norm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """`out` becomes x / rms(x) * weight."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    out.copy_((wide * scale).to(x.dtype) * weight)


def fused_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    """`residual` becomes the sum, `x` its norm."""
    residual.add_(x)
    rms_norm(x, residual, weight, eps)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotate the first numbers of each head, as many as a row of the cache has: cosines, then sines."""
    rotated = cos_sin_cache.shape[-1]
    cos, sin = cos_sin_cache[positions.flatten()].unsqueeze(1).chunk(2, dim=-1)
    for heads in (query, key):
        view = heads.view(positions.numel(), -1, head_size)[..., :rotated]
        if is_neox:
            first, second = (half.clone() for half in view.chunk(2, dim=-1))
            view.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
        else:
            first, second = view[..., ::2].clone(), view[..., 1::2].clone()
            view[..., ::2].copy_(first * cos - second * sin)
            view[..., 1::2].copy_(second * cos + first * sin)
