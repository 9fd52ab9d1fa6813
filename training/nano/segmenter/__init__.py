"""How the two checkpoints for self-segmentation are made, and the whole chain with them.

`nano-plain` writes nano's solutions without tags, in paragraphs that are finer than chunks; `nano-teacher` copies such
a solution with tags in it, and now and then its copy is not exact. Both are packaged; `stepwiser nano segmenter` makes
them anew by ``recipe.yaml``. From plain solutions to a policy that segments itself is one command:

    stepwiser nano self-segment

It queues and follows five runs, which can also be started one by one (or from the Runs page):

    R=training/recipes
    stepwiser run sample --recipe $R/sample-plain-nano.yaml         solutions without tags
    stepwiser run segment --recipe $R/segment-nano.yaml             the teacher's cuts: the set `nano-segmented`
    stepwiser run evaluate-policy --recipe $R/evaluate-policy-nano.yaml --set llm.checkpoint=nano-plain        before
    stepwiser run train-sft --recipe $R/sft-segment-nano.yaml       the checkpoint `nano-segmenting`
    stepwiser run evaluate-policy --recipe $R/evaluate-policy-nano.yaml --set llm.checkpoint=nano-segmenting   after

Measured once (seed 0, 120 steps of fine-tuning): the teacher cut 0.90 of 541 correct solutions within eight tries,
0.78 at the first; 5.96 pieces a solution on blank lines, 3.85 chunks. Accuracy of the policy on forty other problems,
eight solutions each: 0.51 (0.45 to 0.58) before, 0.66 (0.59 to 0.74) after; its outputs were well-formed in no case
before and 0.97 of cases after, with 4.08 chunks where blank lines would give 6.21.
"""
