"""`bench --judge-rate`: the real search, compiler, worker and judge on one task of a family."""

import json

import pytest


def test_the_rate_counts_what_the_search_judged(program):
    result = program.last_json("bench", "--judge-rate", "--device", "cpu", "--minutes", "0.02")
    rate, repeated = result["rate"], result["repeated"]
    assert rate["judged"] == sum(rate["verdicts"].values()) > 0
    assert rate["per_hour"] == pytest.approx(3600 * rate["judged"] / rate["seconds"])
    assert len(repeated["medians_us"]) == repeated["times"] == 20
    middle = repeated["median_us"]
    assert repeated["agree"] == sum(abs(us - middle) <= 0.015 * middle for us in repeated["medians_us"])
    for copy in result["copies"]:
        assert copy["ratio"] == pytest.approx(copy["ours_us"] / copy["memcpy_us"])
    assert [copy["bytes"] for copy in result["copies"]] == [2**25, 2**27, 2**28]


def test_what_belongs_to_a_task_is_refused_without_one(program):
    for words in (["bench", "--judge-rate", "--self-test"], ["bench", "rmsnorm", "--device", "cpu"], ["bench", "rmsnorm", "--minutes", "1"]):
        result = program(*words)
        assert result.returncode == 2, (words, result.out)
    assert json.loads(program("bench", "--judge-rate", "--device", "null", "--json").out)["error"]["what_to_do"] == "use --device cpu or cuda"
