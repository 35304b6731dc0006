"""Learning curves: what their axis says."""

from ensue.look.curves import curves_chart

RECORDS = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "valid_loss": 1.5}]


def title(*units):
    return curves_chart({"a": RECORDS}, units).to_dict()["encoding"]["y"]["title"]


def test_the_axis_names_the_unit_of_the_loss():
    assert title("nats per token") == "loss, nats per token"
    assert title("nats per token", "squared deviations of the past") == (
        "loss, nats per token or squared deviations of the past"
    )
    assert title() == "loss"


def test_training_and_validation_are_separate_lines():
    rows = curves_chart({"a": RECORDS}).to_dict()["data"]["values"]
    assert [(row["on"], row["loss"]) for row in rows] == [("training", 2.0), ("training", 1.0), ("validation", 1.5)]
