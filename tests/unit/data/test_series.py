"""Series from tables: detected columns, filled gaps, and errors that name the line."""

import gzip

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.series import fill_gaps, read_series
from ensue.data.series_columns import SeriesOptions


def written(tmp_path, text, name="my.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path, notes=None, **wanted):
    return read_series([path], SeriesOptions(**wanted), notes if notes is not None else [])


def hourly(rows, start=0):
    return [f"2020-01-{1 + (start + n) // 24:02}T{(start + n) % 24:02}:00,{n},{10 + n},x\n" for n in range(rows)]


def test_dates_header_and_columns_are_detected_and_noted(tmp_path):
    notes = []
    found = read(written(tmp_path, "when,OT,load,kind\n" + "".join(hourly(30))), notes)
    assert found.names == ("OT", "load") and found.targets == 2
    assert found.frequency.description == "hourly" and found.frequency.season == 24
    assert found.values.shape == (30, 2) and found.observed.all()
    assert "with a header, 30 rows, dates in 'when' (hourly); to forecast: OT, load; left out: kind" in notes[0]


def test_covariates_are_read_if_they_are_named(tmp_path):
    path = written(tmp_path, "when,load,OT,kind\n" + "".join(hourly(5)))
    found = read(path, targets=("ot",), covariates=("all",))
    assert found.names == ("OT", "load") and found.targets == 1
    assert read(path, targets=("OT",)).names == read(path, targets=("OT",), covariates=("none",)).names == ("OT",)
    assert read(path, covariates=("load",)).names == ("OT", "load")
    assert read(path, targets=("3", "2")).names == ("OT", "load")


@pytest.mark.parametrize(
    "text",
    ["1\n2\n3\n", "x\n1\n2\n3\n", "No,x\n1,1\n2,2\n3,3\n", "1\t5\n2\t6\n3\t7\n", "a;b\n1,5;2\n2,5;3\n3,5;4\n"],
    ids=["bare", "header", "numbered", "tabs", "semicolons"],
)
def test_tables_without_dates(tmp_path, text):
    found = read(written(tmp_path, text))
    assert found.dates is None and found.frequency.season == 1 and len(found) == 3
    assert found.values[0, 0] == (1.5 if ";" in text else 1)


def test_compressed_files_and_several_files_are_read(tmp_path):
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"x,y\n1,2\n3,4\n"))
    other = written(tmp_path, "x,y\n5,6\n7,8\n9,0\n", "b.csv")
    found = read_series([packed, other], SeriesOptions(), [])
    assert found.starts.tolist() == [0, 2, 5] and found.keys == ("a.csv.gz", "b.csv")
    with pytest.raises(InputError, match=r"c\.csv: has the columns z"):
        read_series([packed, written(tmp_path, "z\n1\n2\n", "c.csv")], SeriesOptions(), [])


def test_a_column_of_names_separates_series(tmp_path):
    rows = [f"2020-01-0{day},{key},{day}\n" for day in range(1, 5) for key in "ab"]
    found = read(written(tmp_path, "day,who,x\n" + "".join(rows)), key="who")
    assert found.keys == ("a", "b") and found.starts.tolist() == [0, 4, 8]
    assert found.values[:, 0].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]


def test_gaps_are_filled_noted_and_not_observed(tmp_path):
    path, notes = written(tmp_path, "x,y\nNA,1\n2,\n,3\n5,4\n"), []
    found = read(path, notes)
    assert found.values.tolist() == [[2, 1], [2, 1], [2, 3], [5, 4]]
    assert found.observed.tolist() == [[False, True], [True, False], [False, True], [True, True]]
    assert any("2 gaps in 'x' (lines 2, 4) filled forward; the loss ignores them" in note for note in notes)
    assert read(path, fill="interpolate").values[2].tolist() == [3.5, 3]
    assert fill_gaps(np.full((3, 1), np.nan), "forward").tolist() == [[0], [0], [0]]


def test_dates_that_are_missing_become_gaps(tmp_path):
    rows, notes = hourly(30), []
    del rows[7:9]
    found = read(written(tmp_path, "when,OT,load,kind\n" + "".join(rows)), notes)
    assert len(found) == 30 and found.values[7:9, 0].tolist() == [6, 6] and not found.observed[7:9].any()
    assert str(found.dates[8]) == "2020-01-01T08:00:00.000"
    assert any("2 dates are missing and became gaps" in note for note in notes)


def test_uneven_dates_are_kept_and_noted(tmp_path):
    notes = []
    found = read(written(tmp_path, "d,x\n2020-01-01,1\n2020-01-02,2\n2020-01-20,3\n2020-03-01,4\n"), notes)
    assert len(found) == 4 and found.frequency.kind == "uneven"
    assert any("not evenly spaced" in note for note in notes)


def test_unsorted_dates_are_an_error_with_their_line_or_are_sorted(tmp_path):
    path = written(tmp_path, "d,x\n2020-01-01,1\n2020-01-03,3\n2020-01-02,2\n2020-01-04,4\n")
    with pytest.raises(InputError, match=r"my\.csv:4: the date 2020-01-02 .* comes after 2020-01-03 .*order=sort"):
        read(path)
    assert read(path, order="sort").values[:, 0].tolist() == [1, 2, 3, 4]
    twice = written(tmp_path, "d,x\n2020-01-01,1\n2020-01-01,3\n", "twice.csv")
    with pytest.raises(InputError, match=r"twice\.csv:3: the date .* occurs twice"):
        read(twice, order="sort")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,y\n1,2\n3,abc\n4,5\n", r"my\.csv:3, column 'y': 'abc' is not a number"),
        ("x,y\n1,2\n3,inf\n", r"my\.csv:3, column 'y': 'inf' is not a number"),
        ("x,y\n1,2\n3\n", r"my\.csv:3: 1 column where the first line has 2"),
        ("d,x\n2020-01-01,1\nsoon,2\n", r"my\.csv:3, column 'd'|my\.csv: there is no|'soon' is no"),
        ("x,y\n", "nothing under the header"),
        ("\n\n", "there is no series"),
        ("a,b\nc,d\ne,f\n", "no column of numbers"),
        ("x,y\n1,\n2,\n", "no column|is empty|left"),
    ],
)
def test_errors_in_a_table_name_the_line(tmp_path, text, says):
    path = written(tmp_path, text)
    if says.startswith("no column|is empty"):
        assert read(path).names == ("x",)  # a column without a number is none
        return
    with pytest.raises(InputError, match=says):
        read(path, **({"date": "d"} if "soon" in text else {}))


def test_the_error_for_an_unknown_target_suggests_the_nearest_name(tmp_path):
    with pytest.raises(InputError, match=r"my\.csv: unknown column 'lod'; did you mean 'load'"):
        read(written(tmp_path, "when,OT,load\n2020-01-01,1,2\n"), targets=("lod",))


def test_columns_of_years_months_and_days_make_dates(tmp_path):
    rows = [f"{n + 1},2010,1,{1 + n // 24},{n % 24},{n}\n" for n in range(30)]
    found = read(written(tmp_path, "No,year,month,day,hour,pm\n" + "".join(rows)))
    assert found.names == ("pm",)
    assert found.frequency.description == "hourly" and str(found.dates[25]) == "2010-01-02T01:00:00.000"


def test_series_of_different_frequencies_are_not_filled_up_to_the_finest(tmp_path):
    hours = [f"2020-01-{1 + n // 24:02} {n % 24:02}:00,a,{n}\n" for n in range(60)]
    days = [f"2020-01-{n:02} 00:00,b,{n}\n" for n in range(1, 31)]
    notes = []
    found = read(written(tmp_path, "when,id,x\n" + "".join(hours + days)), notes, key="id")
    assert len(found) == 90 and found.observed.all() and found.frequency.kind == "uneven"
    assert any("not evenly spaced" in note for note in notes)


def test_files_of_different_frequencies_are_noted(tmp_path):
    hours = written(tmp_path, "when,x\n" + "".join(f"2020-01-01 {n:02}:00,{n}\n" for n in range(5)), "hours.csv")
    days = written(tmp_path, "when,x\n" + "".join(f"2020-01-{n:02},{n}\n" for n in range(1, 6)), "days.csv")
    notes = []
    assert read_series([hours, days], SeriesOptions(), notes).frequency.description == "hourly"
    assert any("days.csv: steps are daily, and those of" in note and "hourly" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b,a\n1,2,3\n4,5,6\n", "my.csv: two columns are called 'a'; rename one of them"),
        ("a\n1\n1e200\n", "my.csv:3, column 'a': 1e200 is too large to compute with"),
        ("a,b\r1,2\r3,4\r", "lines end in CR alone; end them in LF or CR LF"),
    ],
)
def test_unusable_tables_and_numbers_are_errors(tmp_path, text, says):
    path = tmp_path / "my.csv"
    path.write_bytes(text.encode())
    with pytest.raises(InputError, match=says):
        read(path)


def test_repeated_hours_are_distinguished_by_their_utc_offset(tmp_path):
    hours = ("01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00", "04:00+01:00")
    rows = [f"2020-10-25 {hour},{n}\n" for n, hour in enumerate(hours)]
    notes = []
    found = read(written(tmp_path, "when,x\n" + "".join(rows)), notes)
    assert found.frequency.description == "hourly" and found.values.ravel().tolist() == [0, 1, 2, 3, 4]
    assert any("dates are converted to UTC" in note for note in notes)
    with pytest.raises(InputError, match="the date 2020-10-25 02:00:00 occurs twice"):
        read(written(tmp_path, "when,x\n" + "".join(row.replace("+01:00", "").replace("+02:00", "") for row in rows)))
