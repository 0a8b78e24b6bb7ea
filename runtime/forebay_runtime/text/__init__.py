"""From text to token ids and back, by the files of a model."""
