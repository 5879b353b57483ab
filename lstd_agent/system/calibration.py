"""Prediction offsets (section ``offset_calib``, Algorithm ``calibrate_offset``).

An approximator with the main reference state gets the offset that makes its value there 0
(eq. ``offset_main_sref``). One with an auxiliary reference state gets the offset that makes
its value there agree with a neighbour that is already calibrated (eq. ``offset_aux_sref``).
"""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.system.references import ReferenceStates, RuleName


def calibrate_offsets(
    weights: FloatArray,
    features: FloatArray,
    references: ReferenceStates,
    occupancy: FloatArray,
    support_threshold: float = 0.0,
    rule: RuleName = "occupancy",
) -> FloatArray:
    """Return the offset of each approximator, shape (n,).

    Parameters
    ----------
    weights : ndarray, shape (n, d)
    features : ndarray, shape (M, d)
        Of the candidate reference states.
    references : ReferenceStates
        Every neighbourhood has one.
    occupancy : ndarray, shape (n, M)
    support_threshold : float
        A state is in a neighbourhood's support if its occupancy exceeds this.
    rule : {"occupancy", "most_common"}
        Which calibrated neighbourhood to agree with at an auxiliary reference state, when
        several contain it: the one that visits it most often, or the earliest.
    """
    own_value = np.einsum("nd,nd->n", weights, features[references.state])
    calibrated = references.state == references.main
    offsets = np.where(calibrated, -own_value, 0.0)
    waiting = list(np.flatnonzero(~calibrated))
    while waiting:
        for k in waiting:
            state = references.state[k]
            seen = np.where(calibrated, occupancy[:, state], 0.0)
            if seen.max() > support_threshold:
                j = np.argmax(seen if rule == "occupancy" else seen > support_threshold)
                offsets[k] = weights[j] @ features[state] + offsets[j] - own_value[k]
                calibrated[k] = True
        waiting = [k for k in waiting if not calibrated[k]]
    return offsets
