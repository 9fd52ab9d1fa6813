"""Training sets: which labels of the store are trained on, frozen by name with a manifest, previewed, swept, exported.

``choosing`` labels, filters, splits by problem and balances; ``stored`` reads the store; ``duplicates`` and ``leaks``
keep a problem on one side; ``frozen`` writes and checks sets; ``build`` is the kind of run; ``preview`` and ``sweep``
work on counts alone, light enough for a page; ``exports`` writes TRL's formats. Which trainer reads a set is no part
of this package. Nothing here loads torch but ``build``'s token count.
"""

from training.sets.choosing import balanced, choose, chunk_label, split_by_problem
from training.sets.examples import CountTokens, Example, Labelled, TrainingSet
from training.sets.exports import STYLES, export_rows, export_set, styles_of
from training.sets.frozen import (
    Balance,
    Manifest,
    check_set_name,
    freeze,
    list_sets,
    read_frozen,
    read_manifest,
    read_rows,
    sets_folder,
)
from training.sets.kept import read_set, write_set
from training.sets.leaks import check_no_leak, check_set_is_clear_of, leaks
from training.sets.preview import Preview, preview
from training.sets.recipe import BuildSetRecipe
from training.sets.rows import SetRows, examples_for, rows_for
from training.sets.stored import label_examples, stored_chunks, stored_counts
from training.sets.sweep import SweepTable, sweep, swept_rules

__all__ = [
    "STYLES",
    "Balance",
    "BuildSetRecipe",
    "CountTokens",
    "Example",
    "Labelled",
    "Manifest",
    "Preview",
    "SetRows",
    "SweepTable",
    "TrainingSet",
    "balanced",
    "check_no_leak",
    "check_set_is_clear_of",
    "check_set_name",
    "choose",
    "chunk_label",
    "examples_for",
    "export_rows",
    "export_set",
    "freeze",
    "label_examples",
    "leaks",
    "list_sets",
    "preview",
    "read_frozen",
    "read_manifest",
    "read_rows",
    "read_set",
    "rows_for",
    "sets_folder",
    "split_by_problem",
    "stored_chunks",
    "stored_counts",
    "styles_of",
    "sweep",
    "swept_rules",
    "write_set",
]
