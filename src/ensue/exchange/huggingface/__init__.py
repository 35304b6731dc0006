"""Import and export of Hugging Face models: their folders, and weights under their names.

``read_folder`` and ``build_model`` make a model of a folder, ``write_folder`` makes a folder of a model; both take the
weight maps of ``families``. Nothing here needs the library itself.
"""

from ensue.exchange.huggingface.gpt import gpt_from_weights
from ensue.exchange.huggingface.marian import marian_config, marian_from_weights, marian_weights
from ensue.exchange.huggingface.reading import HubFolder, ImportedModel, build_model, read_folder
from ensue.exchange.huggingface.writing import write_folder

__all__ = [
    "HubFolder",
    "ImportedModel",
    "build_model",
    "gpt_from_weights",
    "marian_config",
    "marian_from_weights",
    "marian_weights",
    "read_folder",
    "write_folder",
]
