"""Evaluation: a judge on held-out chunks (``stepwise``), a policy on problems (``policy``), raters with each other
(``agreement``), two judges on the same chunks (``paired``), intervals by problem.

Pure: counts in, numbers out. ``engine.pipeline.evaluating`` draws what is counted.
"""
