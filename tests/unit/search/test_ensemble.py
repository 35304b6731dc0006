import pytest
import torch
from tables import Trigrams

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.search.beam import Search, beam_search
from ensue.search.ensemble import Ensemble
from ensue.search.sampling import Sampling, sample


def test_it_is_the_geometric_mean():
    models = [Trigrams(5, seed=seed) for seed in (1, 2, 3)]
    ensemble = Ensemble(models)
    logits = ensemble(torch.tensor([[2]]), ensemble.start(1), want=("last",)).logits[0, 0]
    p = torch.stack([model.logits[0, 0, 2].softmax(-1) for model in models])
    expected = p.prod(0) ** (1 / 3)
    torch.testing.assert_close(logits.softmax(-1), expected / expected.sum())


def test_models_of_different_kinds_search_as_one():
    gpt = GPTLanguageModel(GPTConfig(vocabulary=9, hidden=8, heads=2, layers=1, context=8))
    lstm = LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=8, dropout=0.5))
    both = Ensemble([gpt, lstm])
    how = Search(beam=3, nbest=2)
    found = beam_search(both, both.start(2), torch.tensor([1, 2]), end=0, longest=6, how=how, trace=True)
    assert not lstm.training
    for begin, f in zip((1, 2), found):
        for one in f.hypotheses:
            tokens = torch.tensor([[begin, *one.tokens, *[0] * one.ended]])
            with torch.no_grad():
                parts = [model(tokens[:, :-1]).logits.log_softmax(-1) for model in (gpt, lstm)]
            together = ((parts[0] + parts[1]) / 2).log_softmax(-1)
            expected = together.gather(-1, tokens[:, 1:, None])[0, :, 0]
            assert one.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
    assert len(sample(both, torch.tensor([1, 2]), Sampling(tokens=4, n=2))) == 2


def test_an_ensemble_of_one_equals_its_member():
    model = Trigrams(6, seed=4, sentences=2)
    alone = beam_search(model, model.start(2), 1, end=0, longest=5)
    ensemble = Ensemble([model, model])
    twice = beam_search(ensemble, ensemble.start(2), 1, end=0, longest=5)
    assert [f.best.tokens for f in alone] == [f.best.tokens for f in twice]
    assert [f.best.score for f in alone] == pytest.approx([f.best.score for f in twice], abs=1e-5)


def test_attention_is_the_mean_if_shapes_agree_else_the_first_members():
    one, two, wide = Trigrams(5, seed=1), Trigrams(5, seed=2), Trigrams(5, seed=3, places=7)

    def seen(*models):
        ensemble = Ensemble(models)
        return ensemble(torch.tensor([[2]]), ensemble.start(1), want=("last", "attention")).attention

    first, second = one.attention[0, 2].mean(0), two.attention[0, 2].mean(0)
    torch.testing.assert_close(seen(one, two)[-1][0, 0, 0], (first + second) / 2)
    torch.testing.assert_close(seen(one, wide)[-1][0, 0, 0], first)
    lstm = LSTMLanguageModel(LSTMConfig(vocabulary=5, hidden=4)).eval()
    assert seen(lstm) is None


def test_members_must_share_a_vocabulary():
    with pytest.raises(InputError, match="vocabularies of 5, 6 tokens"):
        Ensemble([LSTMLanguageModel(LSTMConfig(vocabulary=size, hidden=4)) for size in (5, 6)])
    mixed = Ensemble([Trigrams(5), Trigrams(6)])
    with pytest.raises(InputError, match="one tokenizer"):
        mixed(torch.tensor([[2]]), mixed.start(1), want=("last",))
    with pytest.raises(InputError, match="needs a model"):
        Ensemble([])
