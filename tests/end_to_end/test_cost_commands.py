"""`ensue cost`, as a person types it."""

from typed import ensue

SMALL = ("--vocabulary", "50", "--set", "hidden=8", "--set", "heads=2", "--set", "layers=1", "--set", "context=16")


def test_cost_prints_training_decoding_ranks_time_and_assumptions():
    told = ensue("cost", "gpt", *SMALL, "--hardware", "a100", "--ranks", "2", "--tokens", "1e9").out
    for word in (
        "1,288 parameters",
        "training: ",
        "generating one token",
        "sequential operations",
        "2 ranks, 2 groups (FSDP2)",
        "fits into 80.0 GB of a100",
        "312 TFLOP/s in bf16",
        "45% utilisation (assumed)",
        "1,000,000,000 tokens",
        "16 bytes per parameter",
        "kept (unless --recompute)",
        "of this machine",
    ):
        assert word in told, told


def test_memory_of_one_process():
    told = ensue("cost", "gpt", *SMALL, "--recompute").out
    assert "peak" in told and "with recomputation" in told and "TFLOP/s" not in told


def test_the_table_of_layers():
    asked = ("cost", "layers", "--set", "length=50", "--set", "hidden=10", "--set", "span=10")
    assert "16 n d²" in ensue(*asked).out
    assert ensue(*asked, "--json").json["layers"][1]["flops"] == 16 * 50 * 100


def test_experts():
    told = ensue("cost", "gpt", *SMALL, "--set", "experts=4").out
    assert "active per token" in told


def test_unknown_hardware_suggests_the_nearest_name():
    answer = ensue("cost", "gpt", *SMALL, "--hardware", "h10")
    assert answer.code != 0 and "did you mean 'h100'?" in answer.err
