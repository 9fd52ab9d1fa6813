"""How the nano checkpoint is made: tokenizer, demonstrations, recipe, training, report."""
