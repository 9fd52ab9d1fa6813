"""The one door to language models: ``base`` says what a door is, one file for each door.

No stage knows which door it has. ``engine.llm.open_llm`` opens the door that a recipe names.
"""
