"""Search dynamics bootstrapping (paper, section 3.3): fine-tune a model on its own shorter searches, round by round."""
