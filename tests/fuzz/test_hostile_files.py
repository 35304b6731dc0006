"""Files that claim sizes they do not have, values that no one expects, and lines without an end."""

import base64
import json
import resource
import shutil
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ensue
from ensue.core.errors import InputError
from ensue.data.labelled import ReadOptions, read_labelled
from ensue.data.series import read_series
from ensue.data.series_columns import SeriesOptions
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, load_tokenizer, save_tokenizer
from ensue.data.tokenizers.special_tokens import special_tokens_of
from ensue.exchange.arpa import read_arpa
from ensue.exchange.huggingface import build_model, read_folder, write_folder
from ensue.exchange.word2vec import read_word2vec
from ensue.models.bert import BERT, RoBERTa
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.verbs.racing.folder import open_race, runs_of

GIBIBYTE = 1 << 30
PARTS = [("the cat sat on the mat\n" * 3, True, True)]


@contextmanager
def bounded(size=GIBIBYTE):
    """Let the process allocate so many bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refused(use, *names):
    """Call ``use`` and check that it is refused in one line that has these names."""
    with bounded(), pytest.raises(InputError) as found:
        use()
    assert "\n" not in str(found.value) and str(found.value).encode()
    for name in names:
        assert name in str(found.value)


def change(file, *path, to):
    """Replace a value of a JSON file."""
    value = json.loads(file.read_text(encoding="utf-8"))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    file.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A tiny run of a GPT."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 40, encoding="utf-8")
    sizes = {"hidden": 8, "heads": 2, "layers": 1, "context": 8, "train.steps": 1, "train.batch": 2}
    threads = torch.get_num_threads()
    found = ensue.fit("gpt", text, out=tmp_path / "run", settings={**sizes, "tokenizer.kind": "word"}).folder.path
    yield found
    torch.set_num_threads(threads)


@pytest.fixture
def hub(tmp_path):
    """A Hugging Face folder of a tiny BERT."""
    folder = tmp_path / "hub"
    tokenizer = fit_encoder_tokenizer("wordpiece", [PARTS[0][0]], 300)
    config = BERT.Config(vocabulary=tokenizer.size, layers=1, heads=2, hidden=8, context=16)
    special, state = special_tokens_of(tokenizer), tokenizer.state()
    write_folder(BERT(config), folder, tokenizer_state=state, special=special, labels=None, task="masked")
    return folder


LARGE = [("num_hidden_layers", 10**9), ("hidden_size", 200_000), ("vocab_size", 2**31), ("num_hidden_layers", 10**30)]
LARGE += [("max_position_embeddings", 10**9), ("intermediate_size", 10**9), ("type_vocab_size", 10**9)]


@pytest.mark.parametrize(("name", "value"), LARGE)
def test_sizes_of_a_hub_folder_take_no_memory_before_they_are_checked(hub, name, value):
    change(hub / "config.json", name, to=value)
    refused(lambda: build_model(read_folder(hub)), str(hub))


def test_a_table_of_positions_without_rows_is_refused(tmp_path):
    folder, tokenizer = tmp_path / "hub", fit_encoder_tokenizer("wordpiece", [PARTS[0][0]], 300)
    config = RoBERTa.Config(vocabulary=tokenizer.size, layers=1, heads=2, hidden=8, context=16)
    special, state = special_tokens_of(tokenizer), tokenizer.state()
    write_folder(RoBERTa(config), folder, tokenizer_state=state, special=special, labels=None, task="masked")
    weights = load_file(folder / "model.safetensors")
    weights["roberta.embeddings.position_embeddings.weight"] = torch.zeros(())
    save_file(weights, folder / "model.safetensors")
    refused(lambda: build_model(read_folder(folder)), str(folder))


ODD_CLASSES = [None, [], {}, [[]], [{}], [None], "BertModel", 3, ["\ud800"], ["x" * 10_000], [["BertModel"]]]


@pytest.mark.parametrize("value", ODD_CLASSES)
def test_odd_architectures_are_refused_or_mean_none(hub, value):
    change(hub / "config.json", "architectures", to=value)
    if value in (None, []):
        assert read_folder(hub).architecture == "BertModel"
    else:
        refused(lambda: read_folder(hub), "config.json")


def test_ids_far_above_the_number_of_tokens_are_refused(hub):
    state = json.loads((hub / "tokenizer.json").read_text(encoding="utf-8"))
    word = next(word for word in state["model"]["vocab"] if not word.startswith("["))
    for number in (10**9, 10**6, 10**30, -1, None, 0.5):
        change(hub / "tokenizer.json", "model", "vocab", word, to=number)
        refused(lambda: load_tokenizer(hub), "tokenizer.json")


def test_a_very_long_special_token_is_refused_at_once(hub):
    change(hub / "tokenizer.json", "added_tokens", 0, "content", to="x" * 100_000)
    refused(lambda: load_tokenizer(hub), "tokenizer.json")


@pytest.mark.parametrize("name", ["layers", "experts", "hidden", "vocabulary", "context", "heads"])
@pytest.mark.parametrize("value", [10**9, 10**30, -1, None, "\ud800", [], {}])
def test_sizes_of_a_run_take_no_memory_before_they_are_checked(run, name, value):
    change(run / "config.json", "model", name, to=value)
    use = lambda: ensue.load(run).score(text="the cat")  # noqa: E731
    if (name, value) == ("context", 10**9):  # rotary positions have no table
        with bounded():
            use()
    else:
        refused(use, str(run))


def test_a_sinusoidal_table_grows_with_the_text_and_not_with_the_context():
    with bounded():
        model = GPTLanguageModel(
            GPTConfig(vocabulary=9, hidden=64, heads=2, layers=1, context=10**9, positions="sinusoidal")
        )
    tokens = torch.zeros(1, 5000, dtype=torch.int64)
    assert model(tokens, want=("last",)).logits.shape == (1, 1, 9)


def test_packed_counts_of_a_tokenizer_unpack_to_what_their_size_allows(tmp_path):
    file = tmp_path / "tokenizer.json"
    save_tokenizer(fit_tokenizer_to_parts("word", PARTS), file)
    bomb = base64.b64encode(zlib.compress(bytes(1 << 29), 9)).decode()
    for key in ("grams", "counts"):
        shutil.copy(file, tmp_path / "copy.json")
        change(tmp_path / "copy.json", "spellings", "rest", key, to=bomb)
        refused(lambda: load_tokenizer(tmp_path / "copy.json"), "copy.json")


def test_n_gram_tables_that_lead_outside_their_arrays_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 40, encoding="utf-8")
    path = ensue.fit("ngram", tmp_path / "text.txt", out=tmp_path / "run", settings={"order": 3}).folder.path
    good = load_file(path / "model.safetensors")
    for name, place, value in (
        *(("words", 3, 10**6), ("words", 3, -1), ("offsets", 2, 10**8), ("offsets", 2, -5), ("suffix", -1, 10**8)),
        *(("suffix", -1, -1), ("suffix", 0, 5), ("starts", 1, 3), ("starts", -1, 10**9)),
    ):
        tables = {key: table.clone() for key, table in good.items()}
        tables[name][place] = value
        save_file(tables, path / "model.safetensors")
        refused(lambda: ensue.load(path).score(text="the cat"), "model.safetensors")


@pytest.mark.parametrize("count", ["99999999999999999999", "9" * 5000, "1000000000000"])
def test_counts_of_an_arpa_file_take_no_memory_before_they_are_checked(tmp_path, count):
    file = tmp_path / "lm.arpa"
    body = "\\1-grams:\n-1\t<s>\t0\n-1\t</s>\n-1\ta\t0\n\n\\2-grams:\n-1\t<s> a\n\n\\end\\\n"
    file.write_text(f"\\data\\\nngram 1=3\nngram 2={count}\n\n{body}", encoding="utf-8")
    refused(lambda: read_arpa(file), "lm.arpa")
    file.write_text(f"\\data\\\nngram 1={count}\n\n{body}", encoding="utf-8")
    refused(lambda: read_arpa(file), "lm.arpa")


def test_half_a_surrogate_pair_in_an_arpa_file_is_refused(tmp_path):
    file = tmp_path / "lm.arpa"
    file.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n-1\t\\ud800\n\n\\end\\\n", encoding="utf-8")
    refused(lambda: read_arpa(file), "lm.arpa")


@pytest.mark.parametrize("header", [b"9" * 5000 + b" 3", b"3 " + b"9" * 5000, b"99999999999999 300", b"3 99999999999"])
def test_counts_of_a_vector_file_take_no_memory_before_they_are_checked(tmp_path, header):
    for name, row in (("v.txt", b"a 1 2 3\n"), ("v.bin", b"a " + np.ones(3, "<f4").tobytes())):
        (tmp_path / name).write_bytes(header + b"\n" + row)
        refused(lambda name=name: read_word2vec(tmp_path / name), name)


def test_a_vector_file_without_line_ends_is_refused_at_once(tmp_path):
    file = tmp_path / "v.txt"
    file.write_bytes(b"a" + b" 1" * 5_000_000)
    refused(lambda: read_word2vec(file), "v.txt")


def calls_of(work):
    """Count the function calls of some work, which do not depend on the machine."""
    count = 0

    def hook(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_work_on_a_wide_table_grows_with_its_columns(tmp_path):
    """Four times the columns take about four times the work, not sixteen times."""

    def read(width):
        file = tmp_path / f"{width}.csv"
        file.write_text((",".join(str(n % 7) for n in range(width)) + "\n") * 3, encoding="utf-8")
        with pytest.raises(InputError):
            read_labelled([file], "classify", ReadOptions(), [])

    few, many = (calls_of(lambda width=width: read(width)) for width in (500, 2000))
    assert many < 6 * few


def test_a_series_of_many_columns_is_read(tmp_path):
    file = tmp_path / "wide.csv"
    file.write_text((",".join(str(n % 7) for n in range(30_000)) + "\n") * 3, encoding="utf-8")
    assert len(read_series([file], SeriesOptions(), []).names) == 30_000


ODD = [None, True, -1, 0, 1e308, 10**30, "", "\ud800", [], {}, [[]]]


@pytest.mark.parametrize("value", ODD)
def test_odd_values_of_a_race_are_refused_or_drawn(tmp_path, value):
    entrant = {"system": "lstm", "bits_per_byte": 1.0, "seconds": 1.0, "bytes": 10, "seeds": []}
    race = {"systems": [entrant], "data": ["text.txt"], "match": "time", "budget": "1s", "task": "lm", "shares": []}
    file = tmp_path / "race.json"
    for path in (*(("systems", 0, key) for key in entrant), *((key,) for key in race)):
        file.write_text(json.dumps(race), encoding="utf-8")
        change(file, *path, to=value)
        try:
            open_race(tmp_path)
            runs_of(tmp_path)
        except InputError as error:
            assert "race.json" in str(error) or str(tmp_path) in str(error)


def test_deep_nesting_is_refused(run):
    for name, text in (
        ("config.json", "[" * 100_000),
        ("tokenizer.json", '{"a":' * 100_000),
        ("run.toml", "a = " + "[" * 9000),
    ):
        before = (run / name).read_bytes()
        (run / name).write_text(text, encoding="utf-8")
        refused(lambda: (ensue.load(run).tokenizer, ensue.load(run).settings), name)
        (run / name).write_bytes(before)


def test_a_folder_in_the_place_of_a_file_is_refused(run):
    for name in ("config.json", "tokenizer.json", "run.toml", "model.safetensors"):
        before = (run / name).read_bytes()
        (run / name).unlink()
        (run / name).mkdir()
        refused(lambda: (ensue.load(run).settings, ensue.load(run).model), name)
        (run / name).rmdir()
        (run / name).write_bytes(before)
