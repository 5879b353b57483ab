"""The command that evaluates a policy: its figures, its files, its errors."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import SeminormLSTDAgent
from lstd_agent.commands import evaluate, trial_inputs
from unichain_gym import TabularEnv, TabularMDP, make_mdp

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "evaluate_policy.py"
TAXI = max(name for name in gym.registry if name.startswith("Taxi-"))
FEW = ("--trials", "200", "--t-max", "40")


class Opaque(gym.Env[Any, Any]):
    """Core c with five transient states, whose model is hidden; states from 3, actions from 1."""

    interrupt_after: int | None = None
    terminates = False

    def __init__(self) -> None:
        self._env = TabularEnv(make_mdp("c10"))
        self.observation_space = gym.spaces.Discrete(10, start=3)
        self.action_space = gym.spaces.Discrete(2, start=1)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = self._env.reset(seed=seed)
        return observation + 3, info

    def step(self, action: int) -> Any:
        if Opaque.interrupt_after is not None:
            Opaque.interrupt_after -= 1
            if Opaque.interrupt_after < 0:
                raise KeyboardInterrupt
        observation, reward, _, _, info = self._env.step(action - 1)
        return observation + 3, reward, Opaque.terminates, False, info


@pytest.fixture
def opaque(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Opaque]]:
    make: Any = Opaque
    gym.register("Opaque-v0", entry_point=make)
    gym.register("OpaqueLimited-v0", entry_point=make, max_episode_steps=7)
    monkeypatch.setattr(Opaque, "interrupt_after", None)
    monkeypatch.setattr(Opaque, "terminates", False)
    yield Opaque
    for name in ("Opaque-v0", "OpaqueLimited-v0"):
        del gym.registry[name]


def report_of(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """Run with --json and return the document."""
    assert evaluate.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


@pytest.mark.slow
def test_estimates_come_close_to_the_reference_bias_and_gain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, reference: Any
) -> None:
    case = next(c for c in reference("chains")["cases"] if c["env"] == "h36c")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(case["policy"]))
    report = report_of(capsys, "Unichain-h36c-v0", "--policy", str(policy))
    states = {name: np.array(column) for name, column in report["states"].items()}
    bias = np.array(case["bias"])
    assert report["t_max"] == 10 * case["mixing_time_tv_1e_10"]
    assert_allclose(report["gain"]["exact"], case["gain"], rtol=1e-9)
    assert_allclose(states["exact"], bias - bias[report["main_reference"]], rtol=1e-9, atol=1e-9)
    assert_allclose(states["error"], states["estimated"] - states["exact"], atol=1e-12)
    assert np.abs(states["error"]).max() < 0.05 * np.ptp(bias)
    assert abs(report["gain"]["estimated"] - case["gain"]) < 0.01
    absorbed = np.array(case["mean_absorption_time"]) == 0
    assert_allclose(states["class"] == "recurrent", absorbed)
    assert states["visits"].sum() == 10_000 * (report["t_max"] + 1)


def test_the_text_has_gain_neighbourhoods_states_and_totals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ("Unichain-h6-v0", *FEW, "--n-anchors", "2")
    report = report_of(capsys, *argv)
    assert evaluate.main(argv) == 0
    captured = capsys.readouterr()
    blocks = [block.splitlines() for block in captured.out.strip().split("\n\n")]
    assert captured.err == ""
    gain = f"gain estimated {report['gain']['estimated']:.6f}, exact {report['gain']['exact']:.6f}"
    assert blocks[1] == [gain]
    assert blocks[2][1].split() == ["anchor", "stop", "samples", "rank"]
    assert len(blocks[2]) == 2 + len(report["neighborhoods"]["anchor"])
    assert blocks[3][1].split() == ["state", "class", "visits", "estimated", "±", "exact", "error"]
    assert [row.split()[0] for row in blocks[3][2:]] == list("012345")
    for row, estimated in zip(blocks[3][2:], report["states"]["estimated"], strict=True):
        assert float(row.split()[3]) == pytest.approx(estimated, abs=1e-4)
    totals = f"total rems {report['total_rems']:.4g}, total repb {report['total_repb']:.4g}"
    assert blocks[4] == [totals]


# Four features for ten states leave the value of the start uncertain.
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_saved_arrays_are_enough_to_redo_the_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = ("--policy", "random:3", "--features", "gaussian:4")
    argv = ("Unichain-c10-v0", *chosen, "--trials", "400", "--t-max", "200")
    report = report_of(capsys, *argv, "--save", str(tmp_path / "result.npz"))
    saved = np.load(tmp_path / "result.npz", allow_pickle=False)
    assert saved["env_id"] == "Unichain-c10-v0"
    for table in ("gain", "neighborhoods", "states"):
        for name, column in report[table].items():
            given = column if isinstance(column, list) else [column]
            known = [np.nan if value is None else value for value in given]  # of JSON's null
            assert_array_equal(saved[f"{table}_{name}"].ravel(), known)

    # Each state's value is that of the neighbourhood with the most samples of it.
    anchors, stops = saved["neighborhoods_anchor"], saved["neighborhoods_stop"]
    values = saved["weights"] @ saved["features"].T + saved["offsets"][:, None]
    assert (np.abs(values - saved["states_estimated"]).min(axis=0) < 1e-9).all()

    # The errors, from p^t of the saved policy's chain one step at a time.
    chain = make_mdp("c10").induce(saved["policy"])
    error = np.square(values - chain.relative_value(report["main_reference"]))
    p, total = chain.initial_distribution, 0.0
    for k, (start, stop) in enumerate(zip(anchors, stops, strict=True)):
        for _ in range(start, stop):
            total += np.sqrt(p @ error[k])
            p = p @ chain.transition_matrix
    assert saved["total_rems"] == pytest.approx(total, rel=1e-9)


def test_the_picture_of_stepwise_anchors_is_a_png(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "stepwise.png"
    argv = ("Unichain-h6-v0", *FEW, "--n-anchors", "stepwise", "--plot", str(path))
    report = report_of(capsys, *argv)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert report["neighborhoods"]["anchor"] == list(range(41))


def test_an_environment_without_a_model_gets_no_exact_columns(
    capsys: pytest.CaptureFixture[str], opaque: Any
) -> None:
    argv = ("Opaque-v0", "--trials", "600", "--t-max", "100", "--policy", "random:1")
    report = report_of(capsys, *argv)
    assert set(report["gain"]) == {"estimated"}
    assert set(report["states"]) == {"state", "visits", "estimated", "standard_error"}
    assert "total_rems" not in report
    assert report["states"]["state"] == list(range(3, 13))
    assert report["states"]["estimated"][report["main_reference"] - 3] == pytest.approx(0, abs=1e-9)
    actions = np.random.default_rng(1).integers(2, size=10)
    chain = make_mdp("c10").induce(actions)
    exact = chain.relative_value(report["main_reference"] - 3)
    visited = np.array(report["states"]["visits"]) > 300
    error = np.array(report["states"]["estimated"]) - exact
    assert np.abs(error[visited]).max() < 0.1 * np.ptp(exact)

    assert evaluate.main(["Opaque-v0", *FEW]) == 0
    text = capsys.readouterr().out
    assert "exact" not in text
    assert "total" not in text


def test_a_time_limit_gives_way_to_t_max(capsys: pytest.CaptureFixture[str], opaque: Any) -> None:
    report = report_of(capsys, "OpaqueLimited-v0", *FEW)
    assert sum(report["states"]["visits"]) == 200 * 41


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_ctrl_c_keeps_the_finished_trials(
    capsys: pytest.CaptureFixture[str], opaque: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = -(-200 // trial_inputs.N_ROUNDS)
    monkeypatch.setattr(opaque, "interrupt_after", finished * 41 + 5)
    assert evaluate.main(["Opaque-v0", *FEW, "--json"]) == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n_trials"] == finished
    assert captured.err == f"interrupted: {finished} trials finished\n"


def test_ctrl_c_before_a_trial_has_finished_says_so(
    capsys: pytest.CaptureFixture[str], opaque: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opaque, "interrupt_after", 5)
    assert evaluate.main(["Opaque-v0", *FEW]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "interrupted: no trial has finished\n"


@pytest.mark.slow
def test_a_progress_bar_shows_on_a_terminal_and_not_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert evaluate.main(["Unichain-h6-v0", *FEW]) == 0
    elsewhere = capsys.readouterr()
    assert elsewhere.err == ""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    terminal, stderr = pty.openpty()
    rows_and_columns = struct.pack("HHHH", 24, 80, 0, 0)
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, rows_and_columns)
    command = [sys.executable, str(SCRIPT), "Unichain-h6-v0", *FEW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as run:
        assert run.stdout is not None
        shown = run.stdout.read()
    os.close(stderr)
    assert "step" in os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert shown == elsewhere.out


BAD_ARGUMENTS = [
    (("FrozenPond-v1",), "Environment `FrozenPond` doesn't exist."),
    (("Unichain-h36d-v0",), "does not divide evenly among 4 streams; the nearest valid ones:"),
    (("no_such_module:Env-v0",), "ModuleNotFoundError: No module named 'no_such_module'"),
    (("Unichain-h99999999999-v0",), "h99999999999 would take about 50 TB of memory"),
    (
        ("Unichain-h6-v0", "--trials", "9" * 20),
        "or allow more than --max-minutes 15",
    ),
    ((TAXI, "--restart"), "give a smaller --t-max"),
    (("Unichain-h3-v0", "--policy", "uniform", "--save", "/dev/null/x.npz"), "cannot write"),
    (("Unichain-h6-v0", "--trials", "0"), "needs an integer from 1; got '0'"),
    (("Unichain-h6-v0", "--t-max", "-1"), "needs an integer from 0; got '-1'"),
    (("Unichain-h6-v0", "--n-anchors", "0"), "needs an integer from 1; got '0'"),
    (("Unichain-h6-v0", "--n-anchors", "some"), "needs an integer from 1; got 'some'"),
    (("Unichain-h6-v0", "--calibration", "long"), "invalid choice: 'long'"),
    (("Unichain-h6-v0", "--policy", "greedy"), "keyword or a .npy or .json file; got 'greedy'"),
    (("Unichain-h6-v0", "--policy", "random:x"), "random:SEED needs an integer from 0; got 'x'"),
    (("Unichain-h6-v0", "--policy", "none.npy"), "cannot read none.npy: No such file or directory"),
    (("Unichain-h6-v0", "--features", "gaussian:0"), "integer from 1 to 1000000; got '0'"),
    (("Unichain-h6-v0", *FEW[2:], "--trials", "1"), "needs at least 2 stored; got 1"),
    (("Unichain-h6-v0", "--save", "no/such/result.npz"), "there is no such directory"),
    (("Unichain-h6-v0", "--save", "."), "cannot write .: it is a directory"),
    (("Unichain-h6-v0", "--plot", "x.foo"), "cannot draw x.foo: name a .png, .pdf or .svg file"),
    (("CartPole-v1", *FEW), "observations and actions must be Discrete; got Box"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_ARGUMENTS, ids=lambda value: str(value)[:60])
def test_bad_arguments_end_in_one_clear_error(
    error_of: Any, argv: tuple[str, ...], message: str
) -> None:
    assert message in error_of(evaluate.main, *argv)


BAD_FILES = [
    ("--policy", "[0, 1]", "(6,) (an action a state) or (6, 2) (action probabilities); got (2,)"),
    (
        "--policy",
        "[[0.5, 0.6]" + ", [0.5, 0.5]" * 5 + "]",
        "action probabilities of state 0 sum to ",
    ),
    ("--policy", "[0, 0, 0, 0, 2, 0]", "the policy takes action 2 in state 4; actions are 0 to 1"),
    ("--policy", '["a", "b"]', "needs an array of numbers"),
    ("--policy", "[0, 1", "cannot read"),
    ("--policy", "[[0], [0, 1]]", "cannot read"),
    ("--features", "[[1], [2]]", "features must have shape (6, d)"),
    ("--features", "[[1], [2], [3], [4], [5], [NaN]]", "feature 0 of observation 5 is nan"),
]


@pytest.mark.parametrize(("option", "content", "message"), BAD_FILES, ids=lambda v: str(v)[:30])
def test_a_file_that_does_not_fit_ends_in_one_clear_error(
    error_of: Any, tmp_path: Path, option: str, content: str, message: str
) -> None:
    path = tmp_path / "array.json"
    path.write_text(content)
    argv = ("Unichain-h6-v0", *FEW, option, str(path))
    assert message in error_of(evaluate.main, *argv)


def test_a_pickle_is_no_policy(error_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    message = error_of(evaluate.main, "Unichain-h6-v0", *FEW, "--policy", str(path))
    assert "Object arrays cannot be loaded" in message


def test_an_environment_without_a_model_needs_a_length_and_a_policy(
    error_of: Any, opaque: Any
) -> None:
    assert "say with --t-max how long a trial is" in error_of(evaluate.main, "Opaque-v0")
    message = error_of(evaluate.main, "Opaque-v0", *FEW, "--policy", "optimal")
    assert "--policy optimal needs an exact model" in message


def test_a_trial_that_terminates_ends_in_one_clear_error(
    error_of: Any, opaque: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opaque, "terminates", True)
    message = error_of(evaluate.main, "Opaque-v0", *FEW)
    assert "terminated at timestep 0: the evaluator is for continuing tasks" in message
    assert message.endswith("Here, --restart has it start again")


@pytest.mark.slow
def test_restarting_frozen_lake_is_compared_with_its_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert evaluate.main(["FrozenLake-v1", "--restart", "--json", "--trials", "3000"]) == 0
    report = json.loads(capsys.readouterr().out)
    lake = TabularMDP.from_gymnasium(gym.make("FrozenLake-v1"), on_termination="restart")
    chain = lake.induce(np.full((16, 4), 0.25))
    assert report["gain"]["exact"] == chain.gain
    assert report["t_max"] == 10 * chain.mixing_time()
    assert_allclose(report["gain"]["estimated"], chain.gain, rtol=0.15)
    assert_allclose(report["states"]["estimated"], report["states"]["exact"], atol=0.05)


def test_a_mnemonic_an_optimal_policy_and_anchors_by_the_data_are_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = report_of(capsys, "h6", *FEW, "--policy", "optimal", "--n-anchors", "auto")
    best = make_mdp("h6").optimal_policy("bias")
    assert report["gain"]["exact"] == pytest.approx(best.gain[0])


def test_episodes_that_end_are_refused_first(error_of: Any) -> None:
    assert "--restart has it start again" in error_of(evaluate.main, "FrozenLake-v1")


# Twenty timesteps are far from settled.
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_states_that_no_trial_visited_get_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["FrozenLake-v1", "--restart", "--policy", "random:0", "--trials", "40", "--t-max", "20"]
    states = report_of(capsys, *argv)["states"]
    k = states["visits"].index(0)
    assert [states[name][k] for name in ("estimated", "standard_error", "error")] == [None] * 3
    assert states["exact"][k] is not None
    assert evaluate.main(argv) == 0
    line = rf"^ +{k} +\w+ +0 +- +- +-?[0-9.]+ +-$"
    assert re.search(line, capsys.readouterr().out, re.MULTILINE)


def test_an_environment_of_a_module_of_its_own_is_found_in_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(
        "import gymnasium as gym\n"
        "from unichain_gym import TabularEnv, make_mdp\n"
        "gym.register('Own-v0', entry_point=lambda: TabularEnv(make_mdp('c10')))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        report = report_of(capsys, "own_module:Own-v0", *FEW)
    finally:
        gym.registry.pop("Own-v0", None)
    assert report["gain"]["exact"] == make_mdp("c10").induce(np.full((10, 2), 0.5)).gain


def test_a_module_that_fails_is_named_with_its_error(
    tmp_path: Path, error_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    message = error_of(evaluate.main, "broken_module:Own-v0")
    assert message.endswith("cannot import broken_module of 'broken_module:Own-v0': "
                            "ZeroDivisionError: division by zero")  # fmt: skip


def test_exact_values_and_errors_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, "Unichain-h6-v0", *FEW, "--no-exact")
    assert set(report["gain"]) == {"estimated"}
    assert set(report["states"]) == {"state", "visits", "estimated", "standard_error"}


def test_errors_that_would_not_fit_are_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "available_memory", lambda: 10_000)
    report = report_of(capsys, "Unichain-h6-v0", *FEW)
    assert "total_rems" not in report
    assert "exact" in report["states"]
    assert report["totals_left_out"].endswith("of memory, and 10 kB are free")
    assert evaluate.main(["Unichain-h6-v0", *FEW]) == 0
    assert "total rems and repb left out: they would take" in capsys.readouterr().out


def test_the_samples_are_kept_when_the_fit_is_interrupted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(agent: SeminormLSTDAgent) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SeminormLSTDAgent, "fit", stop)
    save = tmp_path / "result.npz"
    assert evaluate.main(["Unichain-h6-v0", *FEW, "--save", str(save)]) == 130
    monkeypatch.undo()
    samples = tmp_path / "result.samples.npz"
    assert f"the samples of 200 trials are in {samples}" in capsys.readouterr().err
    assert not save.exists()
    again = report_of(capsys, "Unichain-h6-v0", *FEW)
    kept = SeminormLSTDAgent.load(samples).fit()
    assert kept.predict(np.arange(6)).tolist() == again["states"]["estimated"]


def test_every_result_has_its_provenance(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    save, plot = tmp_path / "result.npz", tmp_path / "picture.png"
    argv = ("Unichain-h6-v0", *FEW, "--seed", "3", "--save", str(save), "--plot", str(plot))
    report = report_of(capsys, *argv)
    facts = report["provenance"]
    assert facts["seed"] == 3
    assert facts["numpy"] == np.__version__
    assert facts["command"].endswith("--json")
    with np.load(save, allow_pickle=False) as saved:
        assert saved["provenance_code"] == facts["code"]
    assert facts["code"].encode() in plot.read_bytes()


def test_a_missing_plot_extra_is_an_error_before_the_work(
    error_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = error_of(evaluate.main, "Unichain-h6-v0", *FEW, "--plot", "picture.png")
    assert message == 'pictures need matplotlib: pip install "unichain-gym[plot]"'


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a file's size")
def test_a_full_disk_loses_only_the_files(tmp_path: Path) -> None:
    # A limit of a file's size fails a write as a full disk does.
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from lstd_agent.commands.evaluate import main; sys.exit(main(sys.argv[1:]))"
    )
    argv = ["Unichain-h6-v0", *FEW, "--save", str(tmp_path / "a.npz"), "--quiet"]
    run = subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "relative value of each state" in run.stdout
    # Libraries whose caches cannot be written may say so, too.
    samples, results = (x for x in run.stderr.splitlines() if x.startswith("error: "))
    assert samples.endswith("a.samples.npz'; the samples are not saved")
    assert results.endswith("a.npz'")
    assert list(tmp_path.iterdir()) == []
