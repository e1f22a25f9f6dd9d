"""Images in the prompts of tiny classes, as SGLang's processors hand them to its scheduler."""

from __future__ import annotations

import math
from typing import Any

import torch
from sglang.srt.layers.rotary_embedding import MRotaryEmbedding
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem, MultimodalProcessorOutput
from tiny_classes import IMAGES, MODELS, PLACES

_SIDE: int = IMAGES["image_size"]
_PATCHES: int = _SIDE // IMAGES["patch_size"]
_GRID = (1, _PATCHES, _PATCHES)
_TOKENS: int = math.prod(_GRID) // IMAGES["spatial_merge_size"] ** 2
"""Of one image, of each class."""
_PLACE = [
    PLACES["vision_start_token_id"],
    *_TOKENS * [PLACES["image_token_id"]],
    PLACES["vision_end_token_id"],
]


def takes_images(name: str) -> bool:
    """Whether a class has an encoder of images."""
    return "vision_config" in MODELS[name]


def with_places(ids: list[int], count: int) -> list[int]:
    """A prompt with so many images, one behind the other, between the halves of its text."""
    return [*ids[: len(ids) // 2], *count * _PLACE, *ids[len(ids) // 2 :]]


def images_of(name: str, ids: list[int], seed: int) -> MultimodalProcessorOutput | None:
    """Images of noise for the places of a prompt; None without any."""
    image = PLACES["image_token_id"]
    starts = [at for at, token in enumerate(ids) if token == image and ids[at - 1] != image]
    if not starts:
        return None
    chance = torch.Generator().manual_seed(seed)
    items = [_item(name, start, chance) for start in starts]
    if "Qwen" not in name:
        return MultimodalProcessorOutput(mm_items=items, padded_input_ids=_padded(ids, items))
    positions, delta = MRotaryEmbedding.get_rope_index(
        **{
            each: value
            for each, value in PLACES.items()
            if each not in ("image_token_index", "vision_end_token_id")
        },
        spatial_merge_size=IMAGES["spatial_merge_size"],
        model_type=MODELS[name]["model_type"],
        tokens_per_second=2,
        input_ids=torch.tensor([ids]),
        image_grid_thw=torch.tensor([_GRID] * len(items)),
        video_grid_thw=None,
    )
    return MultimodalProcessorOutput(
        mm_items=items, im_token_id=image, mrope_positions=positions.squeeze(1), mrope_position_delta=delta
    )


def _item(name: str, start: int, chance: torch.Generator) -> MultimodalDataItem:
    if "Qwen" in name:
        width = IMAGES["in_channels"] * IMAGES["temporal_patch_size"] * IMAGES["patch_size"] ** 2
        shape: tuple[int, ...] = (math.prod(_GRID), width)
    else:
        shape = (1, IMAGES["in_channels"], _SIDE, _SIDE)
    sizes: dict[str, Any] = {"image_grid_thw": torch.tensor([_GRID]), "image_sizes": [(_SIDE, _SIDE)]}
    return MultimodalDataItem(
        modality=Modality.IMAGE,
        feature=torch.randn(shape, generator=chance),
        offsets=[(start, start + _TOKENS - 1)],
        model_specific_data=sizes,
    )


def _padded(ids: list[int], items: list[MultimodalDataItem]) -> list[int]:
    """The prompt with each image's own numbers in its places, by which its KV is found again."""
    padded = list(ids)
    for item in items:
        item.set_pad_value()
        for start, end in item.offsets or ():
            padded[start : end + 1] = (end + 1 - start) * [item.pad_value]
    return padded
