"""The random streams: known bits, keys that do not collide, coins that are fair."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gatescope.tasks import randomness
from gatescope.tasks.compiled import compiled
from gatescope.tasks.randomness import START, coin, key, mix, next_bits, uniform

SPLITMIX_OF_1234567 = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


@compiled
def many(state: np.uint64, bits: np.ndarray, coins: np.ndarray, uniforms: np.ndarray) -> None:
    for i in range(len(bits)):
        _, coins[i] = coin(state)
        _, uniforms[i] = uniform(state)
        state, bits[i] = next_bits(state)


def draws(state: np.uint64, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bits, coins, uniforms = np.empty(count, np.uint64), np.empty(count, np.int64), np.empty(count)
    many(state, bits, coins, uniforms)
    return bits, coins, uniforms


def test_the_bits_are_those_of_splitmix64_as_published() -> None:
    bits, _, _ = draws(np.uint64(1234567), 5)
    assert bits.tolist() == SPLITMIX_OF_1234567


def test_the_keys_never_change() -> None:
    assert int(key()) == 0x243F6A8885A308D3
    assert int(key(1, 2)) == 16424394857094944517
    assert int(key(101, 3, randomness.TESTING, 29_999, 9)) == 4255418583019025754


def test_the_kinds_never_change() -> None:
    kinds = (randomness.WEIGHTS, randomness.TRAINING, randomness.TESTING, randomness.RETEST, randomness.SAMPLE)
    assert kinds == (0, 1, 2, 3, 4)


def test_a_key_is_mixed_part_by_part_and_is_of_unsigned_64_bits() -> None:
    made = key(7, 2**64 - 1, 0)
    assert isinstance(made, np.uint64)
    by_hand = START
    for part in (7, 2**64 - 1, 0):
        by_hand = np.uint64(mix(by_hand, np.uint64(part)))
    assert made == by_hand


def test_a_kernel_mixes_signed_loop_counters_as_key_does() -> None:
    @compiled
    def in_a_loop(state: np.uint64, out: np.ndarray) -> None:
        for test in range(len(out)):
            out[test] = mix(state, test)

    out = np.empty(5, np.uint64)
    in_a_loop(key(1, 2), out)
    assert out.tolist() == [int(key(1, 2, test)) for test in range(5)]


def test_coins_and_uniforms_are_the_top_bits_without_a_detour_over_floats() -> None:
    bits, coins, uniforms = draws(key(5), 10_000)
    assert coins.tolist() == [value >> 63 for value in bits.tolist()]
    assert uniforms.tolist() == [(value >> 11) / 2**53 for value in bits.tolist()]
    assert (bits.astype(object) % 2 == 1).any()  # a detour over float64 would leave the low bits 0


def test_neighbouring_keys_do_not_collide_and_look_independent() -> None:
    keys = [int(key(a, b, c)) for a in range(20) for b in range(20) for c in range(20)]
    assert len(set(keys)) == 8000
    ones = np.unpackbits(np.array(keys, np.uint64).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(8000 * 64)
    first = np.array([coin(np.uint64(state))[1] for state in keys])
    assert abs(first.mean() - 0.5) < 5 * 0.5 / np.sqrt(8000)
    flips = np.array([first[:-1] != first[1:]]).mean()
    assert abs(flips - 0.5) < 5 * 0.5 / np.sqrt(8000)


def test_coins_are_fair_and_without_memory() -> None:
    _, coins, uniforms = draws(key(11), 1_000_000)
    pairs = np.bincount(coins[:-1] * 2 + coins[1:], minlength=4)
    assert ((pairs - 250_000) ** 2 / 250_000).sum() < 25  # chi-square with 3 degrees: above 21.1 once in 10,000
    assert abs(uniforms.mean() - 0.5) < 5 / np.sqrt(12e6)
    assert uniforms.min() >= 0
    assert uniforms.max() < 1


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_a_number_out_of_range_is_refused_by_name(wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"must lie in \[0, 2\^64\); {wrong} came"):
        key(1, wrong)


def test_what_is_no_whole_number_is_refused() -> None:
    with pytest.raises(TypeError):
        key(1.5)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_does_not_stop_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from gatescope.tasks import compiled as module

    real = module.njit

    def no_cache(*args: object, **options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
        return real(*args, **options)

    monkeypatch.setattr(module, "njit", no_cache)
    assert module.compiled(lambda x: x + 1)(2) == 3


def test_code_on_disk_is_thrown_away_when_a_file_that_it_calls_into_has_changed(tmp_path: Path) -> None:
    """A kernel calls one in another file; that file changes, the caller's does not."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    shutil.copy(Path(randomness.__file__).with_name("compiled.py"), folder)
    (folder / "__init__.py").write_text("")
    (folder / "caller.py").write_text(
        "from .callee import number\nfrom .compiled import compiled\n@compiled\ndef asked():\n    return number()\n"
    )

    def answer(number: int) -> tuple[int, int]:
        text = f"from .compiled import compiled\n@compiled\ndef number():\n    return {number}\n"
        (folder / "callee.py").write_text(text)
        code = "from kernels.caller import asked; print(asked(), sum(asked.stats.cache_hits.values()))"
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        value, hits = done.stdout.split()
        return int(value), int(hits)

    assert answer(1111) == (1111, 0)
    assert answer(22222) == (22222, 0)  # of another length: Python tells times apart to the second only
    code = "from kernels.caller import asked; asked(); print(sum(asked.stats.cache_hits.values()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1  # with nothing changed the code on disk is used
