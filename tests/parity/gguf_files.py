"""GGUF files of tiny random models of transformers, written by the package gguf with its own names of tensors."""

import math
from itertools import pairwise

import hub_decoders
import numpy as np
import torch

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = {"▁t": -1.0, "he": -2.0, "▁the": -3.0, "▁a": -4.0, "▁r": -5.0, "ain": -7.0, "in": -6.0, "▁rain": -8.0}
LETTERS = [*"▁abcdefghijklmnopqrstuvwxyz<>/_s"]
SHAPES = {
    "llama": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "llama 3.1": (
        "llama",
        {
            "rope_theta": 5e4,
            "tie_word_embeddings": True,
            "head_dim": 32,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
    ),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {"use_sliding_window": False}),
    "qwen3": ("qwen3", {"rope_scaling": None}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 32, "num_hidden_layers": 3, "rms_norm_eps": 1e-5}),
    "gemma2 27b": (
        "gemma2",
        {
            "num_hidden_layers": 46,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 8,
        },
    ),
    "gemma3": ("gemma3", {"query_pre_attn_scalar": 32}),
    "gemma3 capped": ("gemma3", {"query_pre_attn_scalar": 32, "final_logit_softcapping": 2.0}),
    "gemma3 27b": (
        "gemma3",
        {
            "num_hidden_layers": 62,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 31,
        },
    ),
}
"""Our name of a case → the kind of model and its settings."""


def tokenizer_values(writer, pieces):
    """Write a tokenizer of SentencePiece, or one of byte-level BPE; return its size."""
    if pieces:
        tokens = ["<unk>", "<s>", "</s>", *BYTES, "  ", *dict.fromkeys(LETTERS), *PIECES]
        kinds = [2, 3, 3, *[6] * 256, 4, *[1] * (len(tokens) - 260)]
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([PIECES.get(token, -1000.0) for token in tokens])
        writer.add_add_space_prefix(False)
    else:
        library = hub_decoders.json.loads(hub_decoders.byte_level().to_str())
        vocab = {**library["model"]["vocab"], **{one["content"]: one["id"] for one in library["added_tokens"]}}
        tokens = sorted(vocab, key=vocab.get)
        kinds = [3 if token in hub_decoders.SPECIAL else 1 for token in tokens]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges([" ".join(merge) for merge in library["model"]["merges"]])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_add_bos_token(True)
    return len(tokens)


def write_file(path, case):
    """Write a file of a tiny random model; return the model of transformers."""
    import gguf

    kind, settings = SHAPES[case]
    model = hub_decoders.write_folder(path.parent / "hub", kind, hub_decoders.byte_level(), **settings)
    config = model.config
    name = "llama" if kind == "mistral" else kind
    writer = gguf.GGUFWriter(path, name)
    tokenizer_values(writer, pieces=kind in ("llama", "mistral", "gemma2", "gemma3"))
    heads, kv = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_key_length(width)
    writer.add_value_length(width)
    if kind in ("mistral", "gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    for name_of, add in (("attn", writer.add_attn_logit_softcapping), ("final", writer.add_final_logit_softcapping)):
        if cap := getattr(config, f"{name_of}_logit_softcapping", None):
            add(cap)
    if kind == "gemma3":
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
        writer.add_float32("gemma3.rope.freq_base_swa", config.rope_local_base_freq)
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", frequency_factors(config, width))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[name.upper()], config.num_hidden_layers)
    for theirs, tensor in model.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        data = tensor + 1 if kind in ("gemma2", "gemma3") and theirs.endswith("norm.weight") else tensor
        for projection, count in (("q_proj", heads), ("k_proj", kv)):
            if name == "llama" and projection in theirs:
                data = data.view(count, 2, -1, *data.shape[1:]).transpose(1, 2).reshape(data.shape)
        writer.add_tensor(names.get_name(theirs, try_suffixes=(".weight", ".bias")), data.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def frequency_factors(config, width):
    """What the speeds of rotation of Llama 3.1 are divided by."""
    scaling = config.rope_scaling
    names = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    context, low, high = (scaling[name] for name in names)
    found = []
    for speed in config.rope_theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width):
        wave = 2 * math.pi / float(speed)
        share = (context / wave - low) / (high - low)
        between = 1 / ((1 - share) / scaling["factor"] + share)
        found.append(1.0 if wave < context / high else scaling["factor"] if wave > context / low else between)
    return np.array(found, np.float32)


def spm_tokens(text, scores):
    """SentencePiece's BPE as its equation: join the neighbours with the best score, the leftmost first."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            break
        at = min(pairs)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    return [one for part in parts for one in ([part] if part in scores else [f"<0x{b:02X}>" for b in part.encode()])]
