"""Evaluate a policy from sampled trials alone, beside the exact answer where there is one.

Runs trials of the environment, learns the relative value (bias) of every state, and prints the
gain, the timestep neighborhoods, and the values with their standard errors. States that no trial
visited get no value. An environment with an exact model (env.unwrapped.mdp; with --restart, the
table P of FrozenLake and its like, on which trials are run, too) also gets exact values, errors and
a default for --t-max; any other needs Discrete observations and actions. --t-max replaces time
limits.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np

from lstd_agent import SeminormLSTDAgent
from lstd_agent.commands import running, trial_inputs
from lstd_agent.environments import available_memory, find_id
from lstd_agent.errors import NotFittedError
from lstd_agent.features.rows import dense
from lstd_agent.features.tables import feature_table
from lstd_agent.figure_style import COLORS
from lstd_agent.problems import PiecewiseValues, StepwiseErrors
from lstd_agent.results import provenance
from lstd_agent.trials.kept import in_words
from unichain_gym import MarkovChain
from unichain_gym.errors import UnichainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXAMPLES = """examples:
  unichain evaluate h36c
  unichain evaluate c10 --policy random:3 --features gaussian:4
  unichain evaluate FrozenLake-v1 --restart --policy optimal
  unichain evaluate my_package:MyEnv-v0 --t-max 300 --policy policy.npy --json"""


def evaluate(args: argparse.Namespace) -> int:
    """Run the trials, fit the agent, and put the result where the arguments ask for it."""
    running.check_destinations(args.plot, args.save)
    samples = args.save.with_suffix(".samples.npz") if args.save else None
    running.check_destinations(None, samples)
    args.registered_id = find_id(args.env_id)
    with gym.make(args.registered_id) as env:
        mdp = trial_inputs.model_or_hint(env, args.restart)
        policy = trial_inputs.read_policy(args.policy, env, mdp)
        spaces: Any = (env.observation_space, env.action_space)
        first_state, first_action = (int(space.start) for space in spaces)
    chain = None
    if mdp is not None and not (args.no_exact and args.t_max is not None):
        chain = mdp.induce(policy - first_action if policy.ndim == 1 else policy)
    t_max = args.t_max if args.t_max is not None else trial_inputs.default_t_max(chain)
    envs = trial_inputs.make_copies(args, t_max, mdp if first_state == first_action == 0 else None)
    features, status = trial_inputs.read_features(args.features, args.seed), 0
    options = {name: getattr(args, name) for name in ("n_anchors", "reference", "calibration")}
    agent = SeminormLSTDAgent(features, **options)
    try:
        with trial_inputs.hinting_at_restart():
            trial_inputs.check_cost(args, envs, policy, t_max)
            agent.collect(
                envs,
                policy,
                n_trials=args.trials,
                t_max=t_max,
                seed=args.seed,
                progress=not args.quiet,
            )
    except KeyboardInterrupt as interrupt:
        status = running.interrupted_status(interrupt)
        told = f"{agent.n_trials} trials" if agent.n_trials else "no trial has"
        running.say(f"interrupted: {told} finished")
    finally:
        envs.close()
        if samples and agent.n_trials and not running.saved(agent.save, samples, "the samples are"):
            status = 1
    if agent.n_trials == 0:
        return status
    try:
        agent.fit()
        report = {"env_id": args.env_id, "n_trials": agent.n_trials, "t_max": t_max}
        found = results(agent, None if args.no_exact else chain, first_state)
        report |= {"seed": args.seed, **found, "provenance": provenance(args.argv, seed=args.seed)}
        files = {args.save: as_arrays(report, agent, policy)} if args.save else {}
        running.put_report(args, report, as_text(report), lambda: draw_report(report, agent), files)
    except (KeyboardInterrupt, MemoryError, OSError):
        if samples and samples.exists():
            running.say(f"the samples of {agent.n_trials} trials are in {samples}")
        raise
    return status


def table_of(agent: SeminormLSTDAgent) -> np.ndarray[Any, Any]:
    """Return the features (S, d) of an agent that counts states."""
    features: Any = agent.features
    return dense(feature_table(features, np.arange(agent.counts.n_states)))


def results(
    agent: SeminormLSTDAgent, chain: MarkovChain | None, first_state: int
) -> dict[str, Any]:
    """Return the estimates, and exact answers if there are any, as numbers and columns."""
    visits = np.asarray(agent._last_fit.source.visits.sum(axis=0)).astype(np.int64)
    observation = first_state + np.arange(visits.size)
    estimated = np.where(visits > 0, agent.predict(observation), np.nan)
    gain = {"estimated": agent.gain_}
    states = {"state": observation, "visits": visits, "estimated": estimated}
    with suppress(NotFittedError):  # a single round of trials has none
        errors = agent.standard_errors(observation)
        states["standard_error"] = np.where(visits > 0, errors, np.nan)
    neighborhoods = {
        field.removeprefix("n_"): np.array([getattr(k, field) for k in agent.neighborhoods_])
        for field in ("anchor", "stop", "n_samples", "rank")
    }
    references = np.array([k.reference for k in agent.neighborhoods_])
    if (references >= 0).all():  # in a linked system only the last neighborhood has one
        neighborhoods["reference"] = references + first_state
    report: dict[str, Any] = {"gain": gain, "main_reference": agent.main_reference_}
    report |= {"neighborhoods": neighborhoods, "states": states}
    if chain is not None:
        gain["exact"] = chain.gain
        recurrent = np.isin(np.arange(chain.n_states), chain.recurrent_states)
        states["class"] = np.where(recurrent, "recurrent", "transient")
        states["exact"] = chain.relative_value(agent.main_reference_ - first_state)
        states["error"] = estimated - states["exact"]
        report |= total_errors(agent, chain, first_state)
    return report


def total_errors(agent: SeminormLSTDAgent, chain: MarkovChain, first_state: int) -> dict[str, Any]:
    """Return both errors summed over all timesteps, or the reason why they are left out."""
    features, t_max = table_of(agent), agent.counts.t_max
    (S, d), settled, free = features.shape, t_max, available_memory()
    with suppress(UnichainError):  # a chain settles by about twice its mixing time
        settled = min(t_max, 2 * chain.mixing_time())
    needed = 8 * (4 * (t_max + 1) * S + 2 * (settled + 1) * d * (d + 1))  # by `StepwiseErrors`
    if needed > free / 2:
        reason = f"they would take {in_words(needed)} of memory, and {in_words(free)} are free"
        return {"totals_left_out": reason}
    errors = StepwiseErrors(chain, features, chain.stepwise_distributions(t_max, tol=0.0))
    return errors.totals(PiecewiseValues.of(agent, chain.n_states, first_state))


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text for people."""
    names = "state", "class", "visits", "estimated", "standard_error", "exact", "error"
    heads = {name: "±" if name == "standard_error" else name for name in names}
    states = report["states"]
    parts = [
        f"{report['env_id']}: {report['n_trials']} trials of timesteps 0 to {report['t_max']}",
        "gain " + ", ".join(f"{name} {value:.6f}" for name, value in report["gain"].items()),
        f"timestep neighborhoods\n{running.table(report['neighborhoods'])}",
        f"relative value of each state to state {report['main_reference']}\n"
        + running.table({head: states[name] for name, head in heads.items() if name in states}),
    ]
    if "total_rems" in report:
        rems, repb = report["total_rems"], report["total_repb"]
        parts.append(f"total rems {rems:.4g}, total repb {repb:.4g}")
    if "totals_left_out" in report:
        parts.append(f"total rems and repb left out: {report['totals_left_out']}")
    return "\n\n".join(parts)


def as_arrays(
    report: dict[str, Any], agent: SeminormLSTDAgent, policy: np.ndarray[Any, Any]
) -> bytes:
    """Return report, policy, features and weights as a .npz file of plain arrays (no pickle)."""
    arrays: dict[str, Any] = {"policy": policy, "features": table_of(agent)}
    for name, value in report.items():
        parts = value if isinstance(value, dict) else None
        arrays |= {name: value} if parts is None else {f"{name}_{k}": parts[k] for k in parts}
    arrays["weights"] = np.stack([each.weights for each in agent.neighborhoods_])
    arrays["offsets"] = np.array([each.offset for each in agent.neighborhoods_])
    arrays["occupancy"] = agent._last_fit.source.visits.toarray() / agent.n_trials
    content = BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def draw_report(report: dict[str, Any], agent: SeminormLSTDAgent) -> Figure:
    """Return the agent's figure, with the exact values among the estimated ones."""
    figure = agent.plot()
    values = figure.axes[0]
    values.set_title(f"{report['env_id']}, {report['n_trials']:,} trials: {values.get_title()}")
    if "exact" in report["states"]:
        exact = report["states"]["exact"]
        low, high = values.get_ylim()
        (mark,) = values.plot(exact, "o", ms=8, mfc="none", color=COLORS[-1], zorder=1)
        values.set_ylim(min(low, exact.min()), max(high, exact.max()))
        values.legend([mark], ["exact"])
    return figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command line."""
    running.add_arguments(parser, "env_id")
    add, at_least = parser.add_argument, running.at_least
    told = "all actions alike (default); a random deterministic one; a bias-optimal one of the "
    told += "exact model; a .npy or .json file of actions (S,) or of action probabilities (S, A)"
    add("--policy", default="uniform", metavar="uniform|random:SEED|optimal|FILE", help=told)
    add("--trials", type=at_least(1), default=10_000, metavar="N", help="default: 10000")
    told = "last timestep of a trial (default: ten times the exact mixing time)"
    add("--t-max", type=at_least(0), metavar="T", help=told)
    told = "one for each state (default); D random ones, N(index of the state, 1); or a .npy "
    told += "or .json file with a row for each state"
    add("--features", default="one-hot", metavar="one-hot|gaussian:D|FILE", help=told)
    told = "wanted number of neighborhoods, at most (default: 2); as many as predict held-out "
    told += "trials best; or one for each timestep"
    add("--n-anchors", type=anchor_number, default=2, metavar="N|auto|stepwise", help=told)
    told = "rule for reference states (default: occupancy; the paper's is most_common)"
    add("--reference", choices=["occupancy", "most_common"], default="occupancy", help=told)
    told = "solve the system backwards in time (default), or link it by reference states"
    add("--calibration", choices=["linked", "references"], default="linked", help=told)
    running.add_arguments(parser, *running.TRIALS)
    told = "write results, policy and weights; before the fit, the agent with its samples goes to "
    told += "FILE.samples.npz (SeminormLSTDAgent.load)"
    add("--save", type=Path, metavar="FILE.npz", help=told)
    running.add_arguments(parser, *running.SHOWN)


def anchor_number(text: str) -> int | Literal["auto"] | None:
    """Read ``--n-anchors``: a number, "auto", or None for stepwise."""
    if text == "auto":
        return "auto"
    return None if text == "stepwise" else running.at_least(1)(text)


main = running.command(evaluate, __doc__, _EXAMPLES, add_arguments)
