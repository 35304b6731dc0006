"""Import and export of Hugging Face models: their folders, and weights under their names.

``read_folder`` and ``build_model`` make a model of a folder, ``write_folder`` makes a folder of a model; both take the
weight maps of ``families``. Nothing here needs the library itself.
"""

# ruff: noqa: I001 (names of one module stay on one line)
from ensue.exchange.huggingface.gpt import gpt_from_weights as gpt_from_weights
from ensue.exchange.huggingface.marian import marian_config as marian_config, marian_weights as marian_weights
from ensue.exchange.huggingface.marian import marian_from_weights as marian_from_weights
from ensue.exchange.huggingface.reading import HubFolder as HubFolder, ImportedModel as ImportedModel
from ensue.exchange.huggingface.reading import build_model as build_model, read_folder as read_folder
from ensue.exchange.huggingface.writing import write_folder as write_folder
