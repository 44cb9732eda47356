"""Scores before the softmax, of every family, against transformers' own: small random checkpoints, saved by it in shards.

What goes into its softmax is caught on the way (`eager` attention, rotary positions, caps and scales included), and its own
hidden states go into ours. Masked pairs have no score there and are left out.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from keyspan.advice.checkpoints.finding import FAMILIES, matches, plan
from keyspan.advice.checkpoints.weights import read_layer, token_vectors
from keyspan.files.checkpoints import open_checkpoint

transformers = pytest.importorskip("transformers")

CLOSE = 1e-4
SMALL = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 12}
SHORT = SMALL | {"max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 5000.0}  # fmt: skip
LONG = {"rope_type": "longrope", "long_factor": [2.0, 3.0], "short_factor": [1.0, 1.5], "rope_theta": 10000.0}
GEMMA3 = {"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
          "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}  # fmt: skip
LATENT = SMALL | {"kv_lora_rank": 10, "q_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
                  "moe_intermediate_size": 8, "num_experts_per_tok": 1, "n_shared_experts": 1, "topk_group": 1,
                  "num_key_value_heads": 6}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", SMALL | {"num_key_value_heads": 2}),
    "llama, biases, one key head": ("Llama", SMALL | {"num_key_value_heads": 1, "attention_bias": True}),
    "llama, stretched like 3.1": ("Llama", SMALL | {"num_key_value_heads": 3, "rope_parameters": LLAMA3}),
    "llama, linear": ("Llama", SMALL | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e3}}),
    "llama, dynamic": ("Llama", SMALL | {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 5e3}}),
    "llama, yarn": ("Llama", SMALL | {"head_dim": 16, "max_position_embeddings": 64, "rope_parameters": YARN}),
    "mistral": ("Mistral", SMALL | {"num_key_value_heads": 2, "head_dim": 10, "sliding_window": 5}),
    "mixtral": ("Mixtral", SMALL | {"num_key_value_heads": 2, "num_local_experts": 2}),
    "qwen2": ("Qwen2", SMALL | {"num_key_value_heads": 2}),
    "qwen2_moe": ("Qwen2Moe", SMALL | {"num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1,
                                        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}),
    "qwen3": ("Qwen3", SMALL | {"num_key_value_heads": 3, "head_dim": 8}),
    "qwen3_moe": ("Qwen3Moe", SMALL | {"num_key_value_heads": 3, "head_dim": 8, "num_experts": 2,
                                        "num_experts_per_tok": 1, "moe_intermediate_size": 8}),
    "gemma": ("Gemma", SMALL | {"num_key_value_heads": 1, "head_dim": 10}),
    "gemma2": ("Gemma2", SMALL | {"num_key_value_heads": 3, "head_dim": 10, "query_pre_attn_scalar": 7,
                                   "attn_logit_softcapping": 0.5, "sliding_window": 4}),
    "gemma3_text": ("Gemma3Text", SMALL | {"num_key_value_heads": 3, "head_dim": 10, "query_pre_attn_scalar": 7,
                                            "sliding_window": 4, "rope_parameters": GEMMA3,
                                            "layer_types": ["sliding_attention", "full_attention"]}),
    "phi": ("Phi", SMALL | {"num_key_value_heads": 2, "qk_layernorm": True}),
    "phi, as 2": ("Phi", SMALL),
    "phi3": ("Phi3", SMALL | {"num_key_value_heads": 2, "pad_token_id": 0}),
    "phi3, long": ("Phi3", SMALL | {"num_key_value_heads": 2, "pad_token_id": 0, "max_position_embeddings": 64,
                                     "original_max_position_embeddings": 32, "rope_parameters": LONG}),
    "gpt2": ("GPT2", {"vocab_size": 97, "n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 32,
                      "scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox": ("GPTNeoX", SMALL | {"hidden_size": 48}),
    "opt": ("OPT", SHORT | {"ffn_dim": 12}),
    "opt, as 350m": ("OPT", SHORT | {"ffn_dim": 12, "do_layer_norm_before": False, "word_embed_proj_dim": 12}),
    "bert": ("Bert", SHORT),
    "roberta": ("Roberta", SHORT | {"max_position_embeddings": 34}),
    "xlm-roberta": ("XLMRoberta", SHORT | {"max_position_embeddings": 34}),
    "deepseek_v2": ("DeepseekV2", LATENT | {"n_routed_experts": 2, "n_group": 1}),
    "deepseek_v2, lite": ("DeepseekV2", LATENT | {"q_lora_rank": None, "n_routed_experts": 2, "n_group": 1}),
    "deepseek_v3": ("DeepseekV3", LATENT | {"n_routed_experts": 4, "n_group": 2, "first_k_dense_replace": 2,
                                             "attention_bias": True, "max_position_embeddings": 64,
                                             "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}}),
}  # fmt: skip


@contextmanager
def softmax_inputs() -> Iterator[list[NDArray[np.float64]]]:
    """What goes into each softmax over (batch, heads, queries, keys), layer by layer."""
    seen: list[NDArray[np.float64]] = []
    softmax = torch.nn.functional.softmax

    def watched(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if x.ndim == 4:
            seen.append(x.detach().double().numpy()[0])
        return softmax(x, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "softmax", watched)
        yield seen


def saved(name: str, settings: dict[str, Any], folder: Path) -> Any:
    """A random model, saved in shards of 8 kB; every gain and bias is off its start, too."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size="8KB")
    return model


@pytest.mark.filterwarnings("ignore")  # of packages that transformers loads
@pytest.mark.parametrize("case", CASES)
def test_scores_before_the_softmax_are_its_own(case: str, tmp_path: Path) -> None:
    name, settings = CASES[case]
    model = saved(name, settings, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ids = torch.randint(3, 97, (1, 11))
    with softmax_inputs() as seen, torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    checkpoint = open_checkpoint(tmp_path)
    layout = plan(checkpoint)
    assert len(seen) == len(layout.layers) == 2
    for layer, theirs in zip(layout.layers, seen, strict=True):
        ours = read_layer(checkpoint, layer).scores(states[layer.layer][0].double().numpy())
        counted = theirs > -1e30
        assert counted.any() and np.abs(theirs[counted]).max() > 0.01
        assert np.abs(ours - theirs)[counted].max() < CLOSE
    rows = token_vectors(checkpoint, layout.embeddings, ids[0].tolist())
    assert rows.shape == (11, layout.d_model)
    if layout.embeddings.positions is None:  # else their positions are not the mean one
        assert np.abs(rows - states[0][0].double().numpy()).max() < CLOSE
    assert all(match.tensor in checkpoint for match in matches(checkpoint, layout))


def test_every_model_type_is_compared() -> None:
    """But `gemma3`, which is `gemma3_text` beside a model of pictures."""
    compared = {getattr(transformers, f"{name}Config").model_type for name, _ in CASES.values()}
    assert compared == set(FAMILIES) - {"gemma3"}
