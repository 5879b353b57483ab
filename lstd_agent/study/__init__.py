"""The paper's experiments, and scores of other methods: all that imports both packages."""

from lstd_agent.study.budget import Budget, BudgetedEnv, BudgetError, trials
from lstd_agent.study.score_tables import Scores
from lstd_agent.study.scoring import ScoringError, score

__all__ = ["Budget", "BudgetError", "BudgetedEnv", "Scores", "ScoringError", "score", "trials"]
