"""Evaluation: a judge on held-out chunks (``stepwise``), a policy on problems (``policy``), intervals by problem.

Pure: counts in, numbers out. ``engine.pipeline.evaluating`` draws what is counted.
"""
