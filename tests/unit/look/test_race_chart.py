"""The chart of a race: lines that can be told apart."""

import pytest

from ensue.look.race import RaceRecord, race_chart
from ensue.nn.mixers.mixer import MIXERS


@pytest.mark.parametrize("count", [2, 7, 8, 14])
def test_every_line_of_a_race_of_many_has_a_look_of_its_own(count):
    names = list(MIXERS)[:count]
    systems = [
        {"system": "gpt", "attention": name, "seconds": 9.0, "bits": float(at), "bytes": 10}
        for at, name in enumerate(names)
    ]
    race = {"systems": systems, "match": "time", "budget": "9s", "data": ["text"], "task": "lm"}
    metrics = {f"gpt {name}": [{"seconds": 1, "bits": 3.0}] for name in names}
    lines = race_chart(RaceRecord(race, metrics, "lm", "bits", "bits", True)).to_dict()["layer"][0]["encoding"]
    colours = lines["color"]["scale"]["range"]
    dashes = lines["strokeDash"]["scale"]["range"] if "strokeDash" in lines else [[1, 0]] * count
    assert len({(colour, str(dash)) for colour, dash in zip(colours, dashes, strict=True)}) == count
    assert ("strokeDash" in lines) is (count > 7)
