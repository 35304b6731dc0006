"""A tiny language model with a chat template."""

from typed import sentences

import ensue as library
from ensue.exchange.gguf.file import read_gguf
from ensue.exchange.gguf.writing import write_gguf
from ensue.verbs.convert import convert

TEMPLATE = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


def write_chat_model(folder):
    """Write a GGUF file of a tiny chat model, and return its path."""
    (folder / "text.txt").write_text(sentences(60), encoding="utf-8")
    shape = {"hidden": 32, "heads": 2, "layers": 1, "context": 64, "inner": 64}
    quick = {"train.steps": 2, "train.batch": 2, "tokenizer.kind": "bpe", "tokenizer.vocabulary": 300}
    run = library.fit("llama", folder / "text.txt", out=folder / "run", settings={**shape, **quick})
    convert(run.folder.path, to="gguf", out=folder / "plain.gguf")
    file = read_gguf(folder / "plain.gguf")
    values = {**file.values, "tokenizer.chat_template": TEMPLATE}
    tokens, kinds = list(values["tokenizer.ggml.tokens"]), values["tokenizer.ggml.token_type"].copy()
    spare = max(number for number in range(300) if number != run.tokenizer.end)
    tokens[spare], kinds[spare] = "<|start|>", 3
    merges = [merge for merge in values["tokenizer.ggml.merges"] if merge.replace(" ", "") in tokens]
    values |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges}
    tensors = {name: (e.format, e.shape, file.blocks(name).tobytes()) for name, e in file.tensors.items()}
    write_gguf(folder / "chat.gguf", values, tensors)
    return folder / "chat.gguf"
