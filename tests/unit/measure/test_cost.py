"""What is counted without numbers is what happens with them: FLOPs, memory, states; for every system of the table."""

import gc

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from ensue.kernels import cross_entropy, disentangled_attention
from ensue.kernels.packing import AttentionRows
from ensue.measure import cost
from ensue.measure.cost import active_parameters, flops_per_token, generating, reference_kernels
from ensue.measure.op_counter import OpCounter, fake_tensors
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.table import SYSTEMS
from ensue.tasks.table import task_spec
from ensue.train.settings import TrainSettings

SMALL = {
    "window": {"context": 3, "embedding": 8, "hidden": 16},
    "rnn": {"hidden": 16},
    "gru": {"hidden": 16},
    "gru-cho": {"hidden": 16},
    "lstm": {"hidden": 64, "layers": 2},
    "ulmfit": {"hidden": 24, "embedding": 16},
    "bilm": {"hidden": 16},
    "elmo": {"hidden": 16, "projection": 8, "filters": (3, 4), "letter": 4},
    "context2vec": {"hidden": 16},
    "gpt": {"layers": 2, "heads": 2, "hidden": 64, "context": 32},
    "llama": {"layers": 2, "heads": 2, "kv_heads": 1, "hidden": 64, "context": 32},
    "transformer-xl": {"layers": 2, "heads": 2, "hidden": 64, "segment": 8, "memory": 4},
    "seq2seq": {"layers": 1, "hidden": 32},
    "convs2s": {"layers": 2, "hidden": 32},
    "bytenet": {"layers": 2, "hidden": 32},
    "transformer": {"layers": 2, "heads": 2, "hidden": 64},
    "t5": {"layers": 2, "heads": 2, "hidden": 64, "context": 32},
    "bert": {"layers": 2, "heads": 2, "hidden": 64, "context": 32},
    "roberta": {"layers": 2, "heads": 2, "hidden": 64, "context": 32},
    "albert": {"layers": 2, "heads": 2, "hidden": 64, "embedding": 4, "context": 32},
    "electra": {"layers": 2, "heads": 2, "hidden": 64, "embedding": 4, "context": 32},
    "deberta": {"layers": 2, "heads": 2, "hidden": 64, "context": 32},
}
NOT_COUNTED = {"ngram", "cove", "word2vec", "last", "seasonal", "linear"}
"""Learnt by counting, by loops of their own, on another run, or from series."""


def builder(system, **more):
    def build():
        torch.manual_seed(0)
        cls = SYSTEMS.load(system)
        fields = cls.Config.__dataclass_fields__
        vocabularies = {name: 60 for name in ("vocabulary", "source_vocabulary") if name in fields}
        return cls(cls.Config(**{**vocabularies, **SMALL[system], **more}))

    return build


def example_loss(model, rows, length, settings=None):
    return task_spec(model.task).example_loss(model, rows, length, settings)


def training(build, *sizes, **options):
    return cost.training(build, example_loss, *sizes, **options)


def on_meta(system, **more):
    with torch.device("meta"):
        return builder(system, **more)()


def allocated(work):
    """The most bytes that torch's allocator had given away at once while this ran."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    held = top = 0
    changes = [one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"]
    for one in sorted(changes, key=lambda one: one.start_ns()):
        held += one.nbytes()
        top = max(top, held)
    return top


def test_every_system_is_counted_or_listed_as_not_counted():
    assert set(SMALL) | NOT_COUNTED == set(SYSTEMS)


@pytest.mark.parametrize("system", SMALL)
def test_every_system_can_be_counted(system):
    found = training(builder(system), 2, 12)
    assert found.flops > 0 and found.activations > 0
    parameters = sum(p.numel() for p in builder(system)().parameters())
    assert found.weights == 4 * parameters and found.peak > found.weights + found.optimiser
    assert found.gradients <= found.weights and found.optimiser == pytest.approx(2 * found.weights, rel=0.02, abs=200)
    model = on_meta(system)
    assert flops_per_token(model, 12) > 0
    assert (generating(model, 12) is None) == (not model.traits.steps)


@pytest.mark.parametrize(
    ("system", "more", "rows", "length"),
    [
        ("gpt", {}, 8, 32),
        ("gpt", {"dropout": 0.1, "positions": "learned", "norm": "post"}, 8, 24),
        ("gpt", {"context": 80}, 4, 80),
        ("lstm", {}, 8, 32),
        ("transformer", {}, 8, 24),
        ("transformer", {"dropout": 0.0}, 4, 70),
        ("bert", {}, 8, 32),
        ("roberta", {"dropout": 0.0}, 8, 32),
        ("deberta", {}, 8, 32),
        ("seq2seq", {}, 8, 12),
        ("convs2s", {}, 8, 12),
    ],
)
def test_memory_equals_what_the_allocator_reports(system, more, rows, length):
    counted = training(builder(system, **more), rows, length)
    model = builder(system, **more)().train()

    def step():
        example_loss(model, rows, length).backward()

    step()
    model.zero_grad()
    there = counted.weights + counted.optimiser + counted.buffers
    assert counted.peak - there == pytest.approx(allocated(step), rel=0.10)


@pytest.mark.parametrize("system", ["gpt", "gru", "lstm", "elmo", "transformer", "bert"])
def test_training_flops_are_what_torch_counts_of_a_real_step(system):
    counted = training(builder(system), 4, 16)
    model = builder(system)().train()
    plain = sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16)  # what torch sees all of
    with reference_kernels(model), plain[0], plain[1], FlopCounterMode(display=False) as seen:
        example_loss(model, 4, 16).backward()
    assert counted.flops == pytest.approx(seen.get_total_flops(), rel=0.05)


LARGE = {
    "window": {},
    "lstm": {"hidden": 256},
    "gru": {"hidden": 256},
    "context2vec": {},
    "gpt": {"layers": 1, "hidden": 256, "context": 128},
    "seq2seq": {"layers": 1},
    "convs2s": {"layers": 1},
    "transformer": {"layers": 1, "hidden": 256},
    "bert": {"layers": 1, "hidden": 256, "context": 128},
}
"""So large, with a vocabulary to match, that kernels are chosen that small models never meet."""


@pytest.mark.parametrize(
    ("system", "rows", "length", "more"),
    [
        *((system, 24, 12, {}) for system in LARGE),
        *((system, 4, 80, {}) for system in ("transformer", "bert")),
        ("gpt", 4, 80, {"experts": 4, "experts_active": 2}),
        ("gpt", 4, 80, {"dropout": 0.1, "norm": "post"}),
    ],
)
def test_every_kernel_counts_its_matmuls(system, rows, length, more):
    def build():
        cls = SYSTEMS.load(system)
        names = [name for name in ("vocabulary", "source_vocabulary") if name in cls.Config.__dataclass_fields__]
        return cls(cls.Config(**{**dict.fromkeys(names, 4000), **LARGE[system], **more}))

    counted = training(build, rows, length).flops
    with fake_tensors(OpCounter()):
        model = build().train()
        plain = sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16)  # what torch sees all of
        with reference_kernels(model), plain[0], plain[1], FlopCounterMode(display=False) as seen:
            example_loss(model, rows, length).backward()
    assert counted == pytest.approx(seen.get_total_flops(), rel=0.05)


@pytest.mark.parametrize("heads", [4, 7])
def test_a_loop_of_equal_steps_counts_as_often_as_it_would_run(heads, monkeypatch):
    """Attention by three heads of a row at a time, and a loss of seven slices."""
    monkeypatch.setattr(disentangled_attention, "PIECE", 3 * 16**2)
    monkeypatch.setattr(cross_entropy, "SLICE", 10 * 6000)

    def step():
        sizes = [(5, heads, 16, 8)] * 3 + [(heads, 31, 8)] * 2
        *parts, by_key, by_query = (torch.randn(size, requires_grad=True) for size in sizes)
        disentangled_attention.disentangled_attention(tuple(parts), (by_key, by_query)).sum().backward()
        hidden, weight = (torch.randn(size, requires_grad=True) for size in ((64, 16), (6000, 16)))
        cross_entropy.mean_cross_entropy(hidden, weight, None, torch.zeros(64, dtype=torch.long)).backward()

    with OpCounter() as ran:
        step()
    with fake_tensors(OpCounter()) as counted:
        step()
    assert ran.flops > 0 and counted.flops == ran.flops
    assert counted.times == 1


def test_allocations_move_nothing_and_lookups_move_the_rows_they_return():
    with OpCounter() as counter:
        table = torch.empty(1000, 10)
        assert not counter.operations
        torch.nn.functional.embedding(torch.zeros(3, dtype=torch.long), table)
    assert counter.operations[-1].moved == 3 * 8 + 2 * 3 * 10 * 4


def test_an_in_place_matmul_is_counted():
    with OpCounter() as counter:
        torch.zeros(4, 6).addmm_(torch.zeros(4, 5), torch.zeros(5, 6))
    assert counter.flops == 2 * 4 * 5 * 6


def test_flops_equal_those_of_the_transformers_model():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=60, n_positions=32, n_embd=64, n_layer=2, n_head=2, attn_implementation="eager"
        )
    )
    tokens = torch.zeros(4, 32, dtype=torch.long)
    with FlopCounterMode(display=False) as seen:
        theirs(tokens, labels=tokens).loss.backward()
    counted = training(builder("gpt", positions="learned"), 4, 32)
    assert counted.flops == pytest.approx(seen.get_total_flops(), rel=0.05)
    assert sum(p.numel() for p in theirs.parameters()) == counted.weights // 4


def test_the_backward_pass_costs_twice_the_forward_pass():
    model = on_meta("gpt")
    assert training(builder("gpt"), 2, 32).flops == pytest.approx(3 * 64 * flops_per_token(model, 32), rel=0.01)


def test_counting_does_not_change_real_tensors():
    AttentionRows._whole.cache_clear()
    training(builder("gpt"), 8, 32)  # short rows: a table of them is kept
    model = builder("gpt")()
    tokens = torch.randint(60, (8, 32))
    loss, _ = model.loss(tokens, tokens)
    loss.backward()
    assert torch.isfinite(loss) and type(model.embed.weight.grad) is torch.Tensor


def test_recomputing_blocks_saves_memory_and_costs_flops():
    settings = (TrainSettings(recompute=what) for what in ("none", "blocks"))
    kept, again = (training(builder("gpt", layers=6), 4, 32, one) for one in settings)
    assert again.activations < 0.5 * kept.activations
    assert kept.flops < again.flops <= kept.flops * 4 / 3


def test_bf16_needs_less_memory():
    wide, narrow = (training(builder("gpt", layers=6), 8, 32, precision=p) for p in ("float32", "bf16"))
    assert narrow.activations < 0.8 * wide.activations and narrow.weights == wide.weights


def test_activations_grow_with_the_batch_and_weights_do_not():
    one, four = (training(builder("gpt"), rows, 32) for rows in (2, 8))
    assert four.activations == pytest.approx(4 * one.activations, rel=0.1) and four.weights == one.weights


def test_optimiser_state_follows_the_optimiser():
    plain = training(builder("rnn"), 2, 8, TrainSettings(optimiser="sgd"))
    momentum = training(builder("rnn"), 2, 8, TrainSettings(optimiser="sgd", momentum=0.9))
    assert plain.optimiser == 0 and momentum.optimiser == momentum.weights


def test_a_further_token_adds_a_key_and_a_value_in_attention_and_nothing_in_an_lstm():
    found = generating(on_meta("gpt"), 32)
    assert found.state_per_token == 2 * 2 * 64 * 4 + 8  # two layers, keys and values, four bytes; and the token itself
    # what a token meets: every matrix twice, and 31 others
    matrices = 2 * (12 * 64**2) + 60 * 64
    assert found.flops == 2 * matrices + 2 * 2 * (2 * 32 * 64)
    lstm = generating(on_meta("lstm"), 32)
    assert lstm.state_per_token == 0 and lstm.state == 2 * 2 * 64 * 4


def test_a_decode_step_without_experts_reads_all_weights():
    model = on_meta("gpt")
    assert generating(model, 8).weights == 4 * active_parameters(model)
    many = on_meta("gpt", experts=4, experts_active=1)
    assert generating(many, 8).weights < 4 * sum(p.numel() for p in many.parameters())


def test_experts_are_counted_with_equal_loads():
    one = training(builder("gpt"), 4, 32)
    many = training(builder("gpt", experts=4, experts_active=1), 4, 32)
    gates = 3 * 2 * (4 * 32) * 2 * 64 * 4
    assert many.flops == pytest.approx(one.flops + gates, rel=0.01)
    assert many.weights > 2 * one.weights


def test_gpt_3_can_be_counted():
    def build():
        return GPTLanguageModel(
            GPTConfig(vocabulary=50257, layers=96, heads=96, hidden=12288, context=2048, positions="learned")
        )

    with torch.device("meta"):
        model = build()
    assert sum(p.numel() for p in model.parameters()) == 174_604_259_328
    assert generating(model, 2048).state_per_token == 96 * 2 * 12288 * 4 + 8


def test_the_counter_counts_real_tensors_too():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=20, hidden=8))
    tokens = torch.zeros(2, 5, dtype=torch.long)
    with OpCounter() as real:
        model.loss(tokens, tokens)[0].backward()
    fake = OpCounter()
    with fake_tensors(fake):
        other = LSTMLanguageModel(LSTMConfig(vocabulary=20, hidden=8))
        begun = fake.flops
        tokens = torch.zeros(2, 5, dtype=torch.long)
        other.loss(tokens, tokens)[0].backward()
    assert real.flops == fake.flops - begun > 0


def test_freed_memory_is_not_counted():
    with OpCounter() as counter:
        a = torch.ones(1000)
        b = a + 1
        del a
        c = b + 1
        del b, c
    assert counter.peak() == 8000
