"""Every parser takes what is spoilt at random, or says in one line what is wrong: a sample of `tests/fuzz.py`."""

from fuzz import fuzz


def test_spoilt_inputs_are_accepted_or_refused_in_one_line(tmp_path, crash_seed):
    counts, findings = fuzz(tmp_path, inputs=6000, seed=crash_seed)
    assert sum(counts.values()) >= 6000
    assert findings == []
