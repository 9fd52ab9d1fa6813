"""The laboratory: the paper's comparisons rerun small, in the nano world, as a plan of runs of the real kinds.

``recipe``: its sizes; ``cells``: which runs there are; ``run``: starting, following, stopping them; ``figures`` of the
cells with their intervals (``intervals``) and the ``report`` made of them. Not: how anything is trained or measured.
"""
