import pytest

from reprogram import ReprogramError, fit
from reprogram.training.settings import TrainingSettings
from sides import build, small_data


def test_settings_are_checked_before_anything_is_trained():
    for settings, words in (
        ({"epochs": 0}, "epochs = 0"),
        ({"epohcs": 3}, "'epohcs' is not known; did you mean 'epochs'"),
        ({"optimizer": "adamw"}, "optimizer = 'adamw'"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"batch_size": 2**63}, "batch_size = 9223372036854775808"),
        ({"loss_temperature": 0}, "loss_temperature = 0 was given, but it should be 'none' or 'auto' or greater than 0"),
        ({"loss_temperature": "automatic"}, "loss_temperature = 'automatic'"),
        ({"average": -1}, "average = -1"),
        ({"patience": 0}, "patience = 0"),
        ({"augment": "trivial flip"}, "augment = 'trivial flip'"),
        ({"schedule": "one-cycle"}, "schedule = 'one-cycle'"),
    ):
        model = build()
        with pytest.raises(ReprogramError, match=words):
            fit(model, small_data(), **settings)
        assert model.program.theta.abs().max() == 0


def test_keywords_go_before_the_settings():
    settings = TrainingSettings(epochs=9, batch_size=30)
    result = fit(build(), small_data(), settings, epochs=2)
    assert len(result.records) == 2
    assert settings.epochs == 9


def test_settings_cannot_be_changed_and_are_written_in_full():
    assert TrainingSettings.read(TrainingSettings(lr=0.3).model_dump()) == TrainingSettings(lr=0.3)
    with pytest.raises(ValueError, match="frozen"):
        TrainingSettings().epochs = 3


def test_a_temperature_is_a_word_or_a_number():
    for given, meant in (("auto", "auto"), ("none", "none"), ("2.5", 2.5), (7, 7.0)):
        assert TrainingSettings.read({"loss_temperature": given}).loss_temperature == meant
