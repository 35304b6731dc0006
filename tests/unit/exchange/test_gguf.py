"""GGUF files: blocks as the format's own library reads them, models there and back, damage refused."""

import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ensue
from ensue.core.errors import InputError
from ensue.exchange.gguf.blocks import FORMATS
from ensue.exchange.gguf.decoder import decoder_tensors
from ensue.exchange.gguf.file import read_gguf
from ensue.exchange.gguf.settings import architecture_of, config_values, decoder_config
from ensue.exchange.gguf.tokenizer import gguf_tokenizer
from ensue.exchange.gguf.writing import BY_NAME, decoder_blocks, write_gguf
from ensue.kernels.grouped import GroupedLinear
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.runs.grouped_weights import assign_tensors, use_groups
from ensue.verbs.convert import convert

HALVES = {
    **dict.fromkeys(("Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **{"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)},
}
"""Where blocks hold a float16."""
TEXT = "the rain fell and the students opened their books while the clock ran on\n" * 60


def blocks(form, rows, columns, seed=0):
    """Random blocks with finite scales."""
    draw = np.random.default_rng(seed)
    if form.split is None:
        values = draw.standard_normal((rows, columns), np.float32)
        return values.view(np.uint8).reshape(rows, columns, 4) if form.name == "F32" else None
    found = draw.integers(0, 256, (rows, columns // form.values, form.bytes), dtype=np.uint8)
    for at in HALVES[form.name]:
        scale = draw.standard_normal(found.shape[:2]).astype("<f2") / 8
        found[..., at : at + 2] = scale[..., None].view(np.uint8)
    return found


@pytest.mark.parametrize("name", HALVES)
def test_blocks_are_decoded_as_the_formats_own_library_does(name):
    quants = pytest.importorskip("gguf.quants")
    constants = pytest.importorskip("gguf.constants")
    form = BY_NAME[name]
    given = blocks(form, 3, 512)
    wanted = quants.dequantize(given.reshape(3, -1), constants.GGMLQuantizationType[name])
    assert np.array_equal(form.decode(given), wanted)


def test_plain_numbers_are_decoded():
    values = np.array([[1.0, -2.5, 3.140625, 0.0]], np.float32)
    short = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(1, 4, 2)
    assert np.array_equal(BY_NAME["BF16"].decode(short), values)
    assert np.array_equal(BY_NAME["F16"].decode(values.astype("<f2").view(np.uint8).reshape(1, 4, 2)), values)
    assert np.array_equal(BY_NAME["F32"].decode(values.view(np.uint8).reshape(1, 4, 4)), values)


LARGE = (2**63, 2**32, 10**6, 2**64 - 1, 200)
VALUES = {"a": "text", "b": 7, "c": 0.5, "d": True, "e": ["x", "yé"], "f": np.array([1, -2], np.int32)}


def small_file(path):
    """A file with values of every type and two tensors."""
    plain = np.arange(6, dtype="<f4").reshape(2, 3)
    q8 = blocks(BY_NAME["Q8_0"], 4, 64)
    tensors = {
        "plain": (BY_NAME["F32"], (2, 3), plain.tobytes()),
        "packed": (BY_NAME["Q8_0"], (4, 64), q8.tobytes()),
    }
    write_gguf(path, VALUES, tensors)
    return plain, q8


def test_what_is_written_is_read(tmp_path):
    plain, q8 = small_file(tmp_path / "x.gguf")
    file = read_gguf(tmp_path / "x.gguf")
    assert set(file.values) == set(VALUES) and all(np.array_equal(file.values[key], VALUES[key]) for key in VALUES)
    assert np.array_equal(file.tensor("plain"), plain) and np.array_equal(file.blocks("packed"), q8)


def test_the_formats_own_library_reads_what_is_written(tmp_path):
    gguf = pytest.importorskip("gguf")
    plain, q8 = small_file(tmp_path / "x.gguf")
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    assert np.array_equal(theirs["plain"].data, plain)
    assert np.array_equal(np.asarray(theirs["packed"].data).reshape(q8.shape), q8)


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_header_is_refused_or_read_in_bounds(tmp_path, seed):
    """Flipped bits, cut ends, and counts of all sizes: one line of InputError, or tensors within the file."""
    small_file(tmp_path / "x.gguf")
    whole = (tmp_path / "x.gguf").read_bytes()
    header = whole.index(b"packed") + 40
    draw, refused = np.random.default_rng(seed), 0
    for case in range(40):
        damaged = bytearray(whole)
        at = int(draw.integers(0, header))
        if case % 4 == 0:
            damaged = damaged[:at]
        elif case % 4 == 1 and at + 8 < header:
            damaged[at : at + 8] = struct.pack("<Q", LARGE[case % len(LARGE)])
        else:
            damaged[at] ^= 1 << int(draw.integers(0, 8))
        (tmp_path / "y.gguf").write_bytes(damaged)
        try:
            file = read_gguf(tmp_path / "y.gguf")
            for name in file.tensors:
                file.tensor(name)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and "y.gguf" in str(error)
    assert refused > 15


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"GGML" + data[4:], "is not a GGUF file"),
        (lambda data: data[:4] + struct.pack("<I", 9) + data[8:], "version 9 is not supported"),
        (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "big-endian"),
        (lambda data: data[:8] + struct.pack("<Q", 2**62) + data[16:], "for which the file is too short"),
        (lambda data: data[:-70], "it ends within"),
        (lambda data: b"", "the file is empty; download it again"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, change, why):
    small_file(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(change((tmp_path / "x.gguf").read_bytes()))
    with pytest.raises(InputError, match=why):
        read_gguf(tmp_path / "x.gguf")


def test_tensors_that_overlap_are_refused(tmp_path):
    small_file(tmp_path / "x.gguf")
    data = bytearray((tmp_path / "x.gguf").read_bytes())
    at = data.index(b"packed") + 6 + 4 + 16 + 4  # name, number of dimensions, dimensions, type
    data[at : at + 8] = bytes(8)
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(InputError, match="overlaps"):
        read_gguf(tmp_path / "x.gguf")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The run of a tiny Llama."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    shape = {"hidden": 64, "heads": 4, "kv_heads": 2, "layers": 2, "context": 32, "inner": 96}
    quick = {"train.steps": 2, "train.batch": 2, "tokenizer.kind": "bpe", "tokenizer.vocabulary": 300}
    return ensue.fit("llama", folder / "text.txt", out=folder / "run", settings={**shape, **quick})


def test_a_run_becomes_a_file_and_a_run_again(llama, tmp_path):
    convert(llama.folder.path, to="gguf", out=tmp_path / "x.gguf")
    again = ensue.load(convert(tmp_path / "x.gguf", out=tmp_path / "again"))
    tokens = torch.from_numpy(llama.tokenizer.encode("the rain fell")[None].astype(np.int64))
    with torch.no_grad():
        assert torch.equal(again.model(tokens).logits, llama.model(tokens).logits)
    assert again.tokenizer.encode(TEXT).tolist() == llama.tokenizer.encode(TEXT).tolist()
    assert again.score(text="the clock ran").bits_per_byte == llama.score(text="the clock ran").bits_per_byte


def quantised(llama, path, kinds):
    """A file of the run in which matrices are blocks of these formats."""
    convert(llama.folder.path, to="gguf", out=path)
    file, tensors = read_gguf(path), {}
    for number, (name, entry) in enumerate(file.tensors.items()):
        form = kinds[number % len(kinds)] if len(entry.shape) == 2 and entry.shape[-1] % 32 == 0 else entry.format
        data = file.blocks(name) if form is entry.format else blocks(form, *entry.shape, seed=number)
        tensors[name] = (form, entry.shape, data.tobytes())
    values = dict(file.values)
    path.unlink()
    write_gguf(path, values, tensors)
    return read_gguf(path)


@pytest.mark.parametrize("kinds", [("Q4_1",), ("Q8_0",), ("Q4_0", "Q8_0", "Q4_1")])
def test_blocks_become_groups_of_the_same_numbers(llama, tmp_path, kinds):
    file = quantised(llama, tmp_path / "x.gguf", [BY_NAME[kind] for kind in kinds])
    run = ensue.load(convert(tmp_path / "x.gguf", out=tmp_path / "run"))
    feed = run.model.blocks[1].feed
    assert type(feed.up) is GroupedLinear
    assert np.array_equal(feed.up.weight.numpy(), file.tensor("blk.1.ffn_up.weight"))
    q, k, v = (file.tensor(f"blk.0.attn_{part}.weight") for part in "qkv")
    order = [np.arange(len(rows)).reshape(heads, -1, 2).swapaxes(1, 2).ravel() for rows, heads in ((q, 4), (k, 2))]
    wanted = np.concatenate([q[order[0]], k[order[1]], v])
    assert np.array_equal(run.model.blocks[0].attention.project.weight.numpy(), wanted)
    assert np.array_equal(run.model.embed(torch.arange(300)).numpy(), file.tensor("token_embd.weight")[:300])
    assert run.config["figures"]["parameters"] == llama.config["figures"]["parameters"]


def test_groups_become_the_same_blocks_again(llama, tmp_path):
    file = quantised(llama, tmp_path / "x.gguf", [BY_NAME["Q4_1"], BY_NAME["Q8_0"]])
    run = convert(tmp_path / "x.gguf", out=tmp_path / "run")
    convert(run, to="gguf", out=tmp_path / "again.gguf")
    again = read_gguf(tmp_path / "again.gguf")
    same = [name for name in file.tensors if again.tensors[name].format is file.tensors[name].format]
    assert {"blk.0.ffn_up.weight", "blk.1.ffn_down.weight"} <= set(same)
    assert all(np.array_equal(again.tensor(name), file.tensor(name)) for name in file.tensors)


def test_a_grouped_model_decodes_token_by_token_as_at_once(llama, tmp_path):
    quantised(llama, tmp_path / "x.gguf", [BY_NAME["Q4_1"]])
    model = ensue.load(convert(tmp_path / "x.gguf", out=tmp_path / "run")).model
    tokens, state, found = torch.arange(20)[None], None, []
    with torch.no_grad():
        wanted = model(tokens).logits
        for token in tokens.split(1, dim=1):
            output = model(token, state)
            state = output.state
            found.append(output.logits)
    assert (torch.cat(found, 1) - wanted).abs().max() < 1e-3 * wanted.abs().max()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("general.architecture", "rwkv", "'rwkv' is not supported"),
        ("llama.block_count", 10**6, "layers and"),
        ("llama.attention.head_count_kv", 3, "do not fit together"),
        ("llama.embedding_length", 0, "embedding_length is 0"),
        ("llama.rope.freq_base", "fast", "rope.freq_base is 'fast'"),
        ("general.architecture", "gemma3n", "'gemma3n' is not supported"),
        ("general.type", "adapter", "holds no model"),
        ("split.count", 3, "one of several files"),
        ("llama.final_logit_softcapping", 30.0, r"llama\.final_logit_softcapping = 30\.0 is not supported"),
        ("llama.expert_count", 8, r"llama\.expert_count = 8 is not supported"),
        ("llama.attention.value_length", 8, "values are not as wide as keys"),
        ("llama.rope.dimension_count", 8, "rotates a part of each head"),
        ("llama.rope.scaling.type", "yarn", r"rope\.scaling\.type = 'yarn' is not supported"),
        ("tokenizer.ggml.model", "t5", "tokenizer 't5' is not supported"),
        ("tokenizer.ggml.model", "llama", "its tokens have no scores"),
        ("tokenizer.ggml.add_eos_token", True, r"add_eos_token = true is not supported"),
        ("tokenizer.ggml.add_bos_token", 1, r"add_bos_token is not true or false"),
        ("tokenizer.ggml.token_type", np.full(300, 9, np.int32), "a token has an unknown type"),
        ("tokenizer.ggml.pre", "martian", "'martian', which is not supported"),
        ("tokenizer.ggml.eos_token_id", 10**6, "its end token is 1000000"),
        ("tokenizer.ggml.merges", ["a b c"], "a merge has not two parts"),
        ("tokenizer.ggml.tokens", ["a", "a"], "do not fit together"),
    ],
)
def test_settings_that_lie_are_refused_before_anything_is_written(llama, tmp_path, key, value, why):
    convert(llama.folder.path, to="gguf", out=tmp_path / "x.gguf")
    file = read_gguf(tmp_path / "x.gguf")
    tensors = {name: (e.format, e.shape, file.blocks(name).tobytes()) for name, e in file.tensors.items()}
    values = {**file.values, key: value}
    write_gguf(tmp_path / "y.gguf", values, tensors)
    with pytest.raises(InputError, match=why):
        convert(tmp_path / "y.gguf", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


GEMMA2 = {"norm": "sandwich-rms", "feed": "geglu", "embed_scale": 32**0.5, "attention": "local:span=5,full"}
GEMMA2 |= {"attention_cap": 50.0, "logit_cap": 30.0, "hidden": 32, "heads": 2, "kv_heads": 1, "head_width": 32}


def gemma2_values(**settings):
    """The metadata and tensors of a small Gemma 2 without its tokenizer."""
    model = LlamaLanguageModel(LlamaConfig(**{**GEMMA2, "vocabulary": 40, "context": 16, "inner": 32, **settings}))
    kind = architecture_of(model.config)
    assert kind == "gemma2"
    return {"general.architecture": kind, **config_values(model.config, kind)}, decoder_blocks(model, kind)


def test_the_query_scale_of_gemma_2_27b_is_in_the_groups_of_its_queries(tmp_path):
    values, tensors = gemma2_values(layers=46)
    form = BY_NAME["Q8_0"]
    for number, (name, (_, shape, data)) in enumerate(tensors.items()):
        if ".attn_" in name and len(shape) == 2:
            data = blocks(form, *shape, seed=number).tobytes()
            tensors[name] = (form, shape, data)
    write_gguf(tmp_path / "x.gguf", values, tensors)
    file = read_gguf(tmp_path / "x.gguf")
    config = decoder_config(file)
    model = LlamaLanguageModel(config)
    weights = decoder_tensors(file, config)
    use_groups(model, weights, "x")
    assign_tensors(model, weights, "x")
    wanted = [file.tensor(f"blk.3.attn_{part}.weight") for part in "qkv"]
    wanted[0] = wanted[0] * np.float32((32 / 16) ** 0.5)  # √d / √(hidden / heads)
    assert np.allclose(model.blocks[3].attention.project.weight.numpy(), np.concatenate(wanted), rtol=1e-6)
    again = decoder_blocks(model, "gemma2")
    assert again.keys() == tensors.keys()
    assert all(again[name] == tensors[name] for name in tensors if ".attn_" in name)


def test_a_gemma_2_file_that_does_not_say_has_the_window_and_caps_of_llama_cpp(tmp_path):
    values, tensors = gemma2_values(layers=2, context=5000, attention="local:span=4096,full")
    left = {key: value for key, value in values.items() if not key.endswith(("softcapping", "sliding_window"))}
    assert len(values) - len(left) == 3
    write_gguf(tmp_path / "x.gguf", left, tensors)
    config = decoder_config(read_gguf(tmp_path / "x.gguf"))
    assert (config.attention, config.attention_cap, config.logit_cap) == ("local:span=4096,full", 50.0, 30.0)
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window"):
        write_gguf(tmp_path / "y.gguf", {**values, f"gemma2.{key}": 0}, tensors)
        with pytest.raises(InputError, match=key):
            decoder_config(read_gguf(tmp_path / "y.gguf"))


def test_a_gemma_2_whose_layers_all_see_everything_stays_one(tmp_path):
    values, tensors = gemma2_values(layers=3, attention="full")
    assert values["gemma2.attention.sliding_window"] == 16
    write_gguf(tmp_path / "x.gguf", values, tensors)
    assert decoder_config(read_gguf(tmp_path / "x.gguf")).attention == "full"


@pytest.mark.parametrize(
    "settings",
    [
        *({"attention_cap": 0.0}, {"logit_cap": 0.0}, {"tied": False}, {"embed_scale": 2.0}),
        *({"attention": one} for one in ("full,local:span=5", "local:span=5:base=100,full", "local:span=5")),
    ],
)
def test_a_gemma_2_that_llama_cpp_does_not_compute_is_not_written(settings):
    with pytest.raises(InputError, match=f"with {next(iter(settings))} = .* has no GGUF form"):
        gemma2_values(**{"layers": 2, **settings})


def test_missing_and_unknown_tensors_are_refused(llama, tmp_path):
    convert(llama.folder.path, to="gguf", out=tmp_path / "x.gguf")
    file = read_gguf(tmp_path / "x.gguf")
    config = decoder_config(file)
    assert gguf_tokenizer(file).size == 300
    left = {name: entry for name, entry in file.tensors.items() if name != "blk.1.ffn_norm.weight"}
    with pytest.raises(InputError, match=r"has no blk\.1\.ffn_norm\.weight"):
        decoder_tensors(type(file)(file.path, file.values, left, file._data), config)
    more = {**file.tensors, "blk.0.extra.weight": file.tensors["output_norm.weight"]}
    with pytest.raises(InputError, match=r"does not have, e\.g\. blk\.0\.extra\.weight"):
        decoder_tensors(type(file)(file.path, file.values, more, file._data), config)


def changed(llama, path, **shapes):
    """The file of a run in which tensors have other shapes."""
    convert(llama.folder.path, to="gguf", out=path.with_suffix(".whole"))
    file = read_gguf(path.with_suffix(".whole"))
    tensors = {name: (e.format, e.shape, file.blocks(name).tobytes()) for name, e in file.tensors.items()}
    for name, shape in shapes.items():
        form, before, data = tensors[name]
        whole = [size if size else -1 for size in shape]
        tensors[name] = form, np.zeros(before).reshape(whole).shape, data
    write_gguf(path, file.values, tensors)
    return path


@pytest.mark.parametrize("shape", [(0,), (2, 0, 4), (8, 0), (0, 8)])
@pytest.mark.parametrize(
    "name", ["blk.0.attn_q.weight", "blk.0.attn_v.weight", "output_norm.weight", "token_embd.weight"]
)
def test_tensors_of_another_shape_are_refused(llama, tmp_path, name, shape):
    path = changed(llama, tmp_path / "other.gguf", **{name: shape})
    if read_gguf(path).tensors[name].shape == read_gguf(path.with_suffix(".whole")).tensors[name].shape:
        return  # a vector as a vector
    with pytest.raises(InputError, match=r"other\.gguf"):
        convert(path, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [["a"], np.array([1, 2], np.int32), True])
@pytest.mark.parametrize(
    "key", ["general.architecture", *(f"tokenizer.ggml.{one}" for one in ("model", "pre", "eos_token_id"))]
)
def test_values_of_another_type_are_refused(llama, tmp_path, key, value):
    file = read_gguf(changed(llama, tmp_path / "whole.gguf"))
    tensors = {name: (e.format, e.shape, file.blocks(name).tobytes()) for name, e in file.tensors.items()}
    write_gguf(tmp_path / "other.gguf", {**file.values, key: value}, tensors)
    with pytest.raises(InputError, match=r"other\.gguf"):
        convert(tmp_path / "other.gguf", out=tmp_path / "run")


@pytest.mark.parametrize("kind", [torch.int64, torch.float16])
def test_plain_weights_beside_groups_are_floats(llama, tmp_path, kind):
    quantised(llama, tmp_path / "short.gguf", (BY_NAME["Q4_1"],))
    run = ensue.load(convert(tmp_path / "short.gguf", out=tmp_path / "short"))
    tensors = {**load_file(run.folder.weights)}
    tensors["norm.weight"] = tensors["norm.weight"].to(kind)
    if kind is torch.float16:
        assign_tensors(run.model, tensors, "here")
        assert run.model.norm.weight.dtype == torch.float32
        return
    with pytest.raises(InputError, match="does not fit"):
        assign_tensors(run.model, tensors, "here")


def test_a_tokenizer_that_has_no_gguf_form_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    settings = {"hidden": 32, "heads": 2, "layers": 1, "train.steps": 1, "tokenizer.kind": "char"}
    run = ensue.fit("llama", tmp_path / "text.txt", out=tmp_path / "run", settings=settings)
    with pytest.raises(InputError, match="byte-level BPE"):
        convert(run.folder.path, to="gguf", out=tmp_path / "run.gguf")


def test_weights_in_groups_are_not_trained(llama, tmp_path):
    quantised(llama, tmp_path / "short.gguf", (BY_NAME["Q4_1"],))
    run = ensue.load(convert(tmp_path / "short.gguf", out=tmp_path / "short"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    none = torch.zeros(1, 0, dtype=torch.long)
    assert run.model.embed(none).shape == (1, 0, run.model.config.hidden)
    with pytest.raises(InputError, match="4 or 8 bits already"):
        run.score(tmp_path / "text.txt", int8=True)
    with pytest.raises(InputError, match=r"train\.lora"):
        ensue.fit("llama", tmp_path / "text.txt", out=tmp_path / "next", begin_with=run.folder.path)


def test_every_format_has_a_number_of_its_own():
    assert all(number == form.number for number, form in FORMATS.items()) and len(BY_NAME) == len(FORMATS)
