"""How the two checkpoints for self-segmentation are made, and the whole chain with them.

`nano-plain` writes nano's solutions without tags, in paragraphs that are finer than chunks; `nano-teacher` copies such
a solution with tags in it, and now and then its copy is not exact. Both are packaged; `stepwiser nano segmenter` makes
them anew. From plain solutions to a policy that segments itself, a command a step:

    R=training/recipes
    stepwiser run sample --recipe $R/sample-plain-nano.yaml       solutions without tags
    stepwiser run segment --recipe $R/segment-nano.yaml           the teacher's cuts: the set `nano-segmented`
    stepwiser run train-sft --recipe $R/sft-segment-nano.yaml     the checkpoint `nano-segmenting`
    stepwiser run evaluate-policy --recipe $R/policy-plain-nano.yaml                                     before
    stepwiser run evaluate-policy --recipe $R/policy-plain-nano.yaml --set llm.checkpoint=nano-segmenting   after

The last two print accuracy, chunks a solution against cutting on blank lines, and the share of well-formed outputs.
"""
