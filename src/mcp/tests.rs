//! What the tools say to a model, to the letter.
