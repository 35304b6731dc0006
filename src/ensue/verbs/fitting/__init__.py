"""The parts of ``ensue fit``: what a training works on, how the model is trained, what is measured and written."""
