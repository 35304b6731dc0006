"""Tiny random language models of transformers, in folders as their makers publish them."""

import json

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = ["the rain fell and the students opened their books", "a clock ran on while the rain fell"] * 20
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] | trim + '<|stop|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<unk>", "<s>", "</s>", "<|start|>", "<|stop|>"]
KINDS = {
    "llama": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "llama3": (
        "Llama",
        {
            "rope_theta": 5e5,
            "tie_word_embeddings": True,
            "head_dim": 32,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "mistral": ("Mistral", {"sliding_window": 6}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": (
        "Qwen3",
        {
            "head_dim": 32,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        },
    ),
    "gemma2": (
        "Gemma2",
        {
            "sliding_window": 6,
            "head_dim": 32,
            "query_pre_attn_scalar": 50,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 2.0,
            "rope_theta": 5000.0,
        },
    ),
    "gemma3-capped": ("Gemma3", {"sliding_window": 6, "head_dim": 32, "final_logit_softcapping": 2.0}),
    "gemma3": (
        "Gemma3",
        {
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_local_base_freq": 1000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "head_dim": 32,
            "query_pre_attn_scalar": 50,
        },
    ),
}


def byte_level():
    """A tokenizer as Llama 3 has it: byte-level BPE, and a token before every text."""
    inner = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|[^\p{L}\p{N}]+"), behavior="isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False))
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return with_begin(inner)


def pieces(space="prepend"):
    """A tokenizer as Llama 2, Mistral or Gemma have it: pieces with ▁ for a space, and bytes."""
    spaced = [text.replace(" ", "▁") for text in TEXT]
    first = {name: number for number, name in enumerate([*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))])}
    trained = Tokenizer(models.BPE())
    letters = ["<", ">", "/"]
    trained.train_from_iterator(
        spaced, trainers.BpeTrainer(vocab_size=80, initial_alphabet=letters, show_progress=False)
    )
    learnt = json.loads(trained.to_str())["model"]
    vocab = {**first, **{piece: len(first) + number for number, piece in enumerate(learnt["vocab"])}}
    merges = [tuple(merge) for merge in learnt["merges"]]
    for left, right in (("<", "s"), ("<s", ">")):  # as in Llama 2: merges that would make a special token
        vocab.setdefault(left + right, len(vocab))
        merges.append((left, right))
    inner = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if space == "prepend":
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps.append(decoders.Strip(" ", 1, 0))
    elif space == "first":
        inner.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        inner.normalizer = normalizers.Replace(" ", "▁")
    inner.decoder = decoders.Sequence(steps)
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return with_begin(inner)


def with_begin(inner):
    """The tokenizer with <s> before every text."""
    special = [("<s>", inner.token_to_id("<s>"))]
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=special)
    return inner


def write_folder(folder, kind, inner, shard="10GB", dtype=torch.float32, **settings):
    """Write a folder of a tiny random model with a tokenizer; returns the model."""
    import transformers

    stem, own = KINDS[kind]
    config = getattr(transformers, f"{stem}TextConfig" if stem == "Gemma3" else f"{stem}Config")(
        **{
            "vocab_size": inner.get_vocab_size() + 7,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "bos_token_id": inner.token_to_id("<s>"),
            "eos_token_id": inner.token_to_id("</s>"),
            "pad_token_id": None,
            **own,
            **settings,
        }
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{stem}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():  # norms that do something, and logits that differ
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1.0 if not stem.startswith("Gemma") and "norm" in name else 0.0, 0.3)
        else:
            torch.nn.init.normal_(parameter, 0.0, 0.15)
    model = model.to(dtype)
    stops = [inner.token_to_id(name) for name in ("</s>", "<|stop|>")]
    model.generation_config.eos_token_id = stops
    model.save_pretrained(folder, max_shard_size=shard)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>", model_max_length=64
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return model
