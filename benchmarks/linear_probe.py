"""What a linear probe reaches on the digits, where one may be trained: the yardstick for "when not to use this".

python benchmarks/linear_probe.py
"""

import argparse

import torch
from sklearn.linear_model import LogisticRegression

from reprogram import load_data, load_frozen
from reprogram.programs import NoProgram
from reprogram.scores import Score


def main() -> None:
    """Fit logistic regressions on raw pixels and on the frozen model's penultimate features; print both accuracies."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    data = load_data("digits")
    frozen = load_frozen("bundled:efficientnet_lite0")
    program = NoProgram(48).bind(frozen.mean, frozen.std)

    @torch.no_grad()
    def features(images: torch.Tensor) -> torch.Tensor:
        parts = [frozen.module.forward_features(program(part)) for part in images.split(128)]
        return torch.cat([frozen.module.forward_head(part, pre_logits=True) for part in parts])

    for name, view in (("the 64 raw pixels", lambda images: images.flatten(1)), ("penultimate features", features)):
        probe = LogisticRegression(max_iter=5000).fit(view(data.train.images), data.train.labels)
        correct = int((probe.predict(view(data.test.images)) == data.test.labels.numpy()).sum())
        print(f"logistic regression on {name}: {Score(correct, len(data.test))}")


if __name__ == "__main__":
    main()
