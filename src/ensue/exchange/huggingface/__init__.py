"""Models of Hugging Face's library, in and out: folders as it writes them, and weights under its names.

``read_folder`` and ``model_from`` make a model of a folder, ``write_folder`` makes a folder of a model; both take the
weight maps of ``families``. Nothing here needs the library itself.
"""

from ensue.exchange.huggingface.gpt import gpt_from
from ensue.exchange.huggingface.marian import marian_config, marian_from, marian_weights
from ensue.exchange.huggingface.reading import Found, Made, model_from, read_folder
from ensue.exchange.huggingface.writing import write_folder

__all__ = [
    "Found",
    "Made",
    "gpt_from",
    "marian_config",
    "marian_from",
    "marian_weights",
    "model_from",
    "read_folder",
    "write_folder",
]
