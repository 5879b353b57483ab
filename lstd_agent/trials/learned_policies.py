"""Policies that learning libraries make: models with a ``predict`` method, and torch modules.

By what they are like, so that neither Stable-Baselines3, scikit-learn nor torch is imported here
before somebody comes with one of their policies. A model acts by ``model.predict(observations)``,
with its own default of drawing actions or not (``partial(model.predict, deterministic=True)``).
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.errors import InvalidInputError


def is_model(policy: Any) -> bool:
    """Tell whether a policy acts by its ``predict`` method, as Stable-Baselines3 models do."""
    acts = callable(getattr(policy, "predict", None))
    return acts and (not callable(policy) or is_module(policy))


def is_module(policy: Any) -> bool:
    """Tell whether a policy is a torch module."""
    return callable(policy) and all(
        callable(getattr(policy, name, None)) for name in ("state_dict", "parameters", "forward")
    )


def module_actions(
    module: Any, observation_space: Space[Any], action_space: Space[Any], observations: Any
) -> NDArray[Any]:
    """Return the actions of a torch module for a batch.

    The module gets it in the type of its parameters (numbers of Discrete observations as int64),
    and returns actions, or one number for each Discrete action, of which the largest is taken.
    """
    import torch  # whose module it is

    parameter = next(iter(module.parameters()), torch.zeros(1))
    with torch.no_grad():
        output = module(_tensors(observation_space, observations, parameter))
    if not isinstance(output, torch.Tensor):
        raise InvalidInputError(
            f"a torch module as a policy returns a tensor of actions; got {type(output).__name__}:"
            " pass a function of observations that calls it"
        )
    answer: NDArray[Any] = output.cpu().numpy()
    if not isinstance(action_space, spaces.Discrete):
        return answer
    # A log may not show all actions.
    if answer.ndim == 2 and answer.shape[1] >= action_space.n:
        return np.asarray(answer.argmax(axis=1) + action_space.start)
    if answer.dtype.kind not in "iu":
        raise InvalidInputError(
            f"a torch module as a policy of {action_space} returns integers (n,) or one number an "
            f"action (n, {action_space.n}); got {answer.dtype} of shape {answer.shape}"
        )
    return answer


def _tensors(space: Space[Any], batch: Any, parameter: Any) -> Any:
    """Return a batch of observations as tensors where a module has its parameters."""
    import torch

    if isinstance(space, spaces.Dict):
        return {key: _tensors(part, batch[key], parameter) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(
            _tensors(part, b, parameter) for part, b in zip(space.spaces, batch, strict=True)
        )
    is_number = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    dtype = torch.int64 if is_number else parameter.dtype
    return torch.as_tensor(np.asarray(batch), dtype=dtype, device=parameter.device)


def fingerprint(policy: Any) -> str | None:
    """Return a hash of the parameters of a policy that learns, None of any other.

    The same object acts otherwise once it has been trained further.
    """
    while isinstance(policy, partial):
        policy = policy.func
    policy = getattr(policy, "__self__", policy)
    module = policy if is_module(policy) else getattr(policy, "policy", None)
    if not is_module(module):
        return None
    assert module is not None
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        if hasattr(value, "cpu"):
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()
