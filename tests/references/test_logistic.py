"""Logistic regression: what scikit-learn finds, and what follows from its definition."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from reprogram.errors import ReprogramError
from reprogram.references.logistic import STRENGTHS, Tried, best, fit_logistic, path


def samples(n=90, width=7, classes=3, seed=0, noise=1.5):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = rng.normal(size=(classes, width))
    features = (centres[labels] + noise * rng.normal(size=(n, width))) * rng.uniform(0.1, 30, width) + 5
    return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)


@pytest.mark.parametrize("strength", [1.0, 0.03, 1e-4])
def test_scikit_learn_finds_the_same(strength):
    features, labels = samples()
    found = fit_logistic(features, labels, 3, strength)
    x = features.double().numpy()
    standard = (x - x.mean(0)) / x.std(0)
    other = LogisticRegression(C=1 / (len(x) * strength), tol=1e-10, max_iter=10_000).fit(standard, labels.numpy())
    np.testing.assert_allclose(
        found.logits(features).softmax(1).numpy(), other.predict_proba(standard), atol=2e-5, err_msg=str(strength)
    )


def test_a_warm_start_leads_to_the_same_end():
    features, labels = samples(seed=1)
    cold = fit_logistic(features, labels, 3, 0.01)
    warm = fit_logistic(features, labels, 3, 0.01, start=fit_logistic(features, labels, 3, 1.0))
    assert torch.allclose(cold.weight, warm.weight, atol=1e-4)


def test_more_rows_than_a_block_and_a_feature_that_never_varies():
    features, labels = samples(n=9000, seed=2)
    features[:, 3] = 0.7
    found = fit_logistic(features, labels, 3, 0.1)
    assert found.deviation[3] == 1
    assert found.weight[3].abs().max() < 1e-5
    again = fit_logistic(features[::3], labels[::3], 3, 0.1)  # every third has all classes no longer
    assert again.logits(features).argmax(1).unique().tolist() == [0]


def test_a_class_without_a_sample_is_never_the_answer():
    features, labels = samples()
    found = fit_logistic(features, labels, 5, 0.01)
    assert found.weight.shape == (7, 5)
    assert found.logits(10 * features).argmax(1).max() <= 2
    assert found.weight.isfinite().all()
    assert found.bias.isfinite().all()


def test_the_affine_function_in_single_precision_says_the_same():
    features, labels = samples()
    found = fit_logistic(features, labels, 3, 0.1)
    assert torch.allclose(found.affine(features).double(), found.logits(features), atol=1e-4)


def test_the_path_ends_when_the_loss_has_risen_and_takes_the_best():
    features, labels = samples(n=60, width=40, seed=3, noise=4)
    found = path([(features[:40], labels[:40], features[40:], labels[40:])], 3)
    assert [one.strength for one in found] == list(STRENGTHS[: len(found)])
    assert len(found) < len(STRENGTHS)  # 40 features of 40 samples: little strength is too little
    chosen = best(found)
    for one in found:
        other = fit_logistic(features[:40], labels[:40], 3, one.strength)
        assert one.log_loss == pytest.approx(other.log_loss(features[40:], labels[40:]), rel=1e-3)
        assert one.log_loss >= chosen.log_loss


def test_folds_are_judged_together():
    features, labels = samples(n=40)
    one, other = (features[:20], labels[:20]), (features[20:], labels[20:])
    parts = [(*one, *other), (*other, *one)]
    both = path(parts, 3, [0.1])[0]
    each = [path([part], 3, [0.1])[0] for part in parts]
    assert both.n == 40
    assert both.correct == sum(one.correct for one in each)
    assert both.log_loss == pytest.approx(sum(one.log_loss for one in each) / 2)


def test_among_equals_the_stronger_one():
    assert best([Tried(1.0, 0.5, 1, 2), Tried(0.1, 0.5, 1, 2), Tried(0.01, float("nan"), 1, 2)]).strength == 1.0


def test_what_cannot_be_solved():
    features, labels = samples()
    with pytest.raises(ReprogramError, match="strength = 0"):
        fit_logistic(features, labels, 3, 0)
    with pytest.raises(ReprogramError, match="0 samples"):
        fit_logistic(features[:0], labels[:0], 3, 1.0)
