"""The same numbers from a frozen network, faster.

`accelerate.accelerate(frozen, program)` prepares, once, what `frozen(program(images))` computes:

- the network as a graph with its batch norms folded into convolutions, channels-last (`network`, `folding`);
- for a program that says where its canvases differ, *shared-frame execution* (`windows`, `framing`, `builder`, `schedule`):
  outside the image all samples have the same canvas, so the outer part of every early activation is computed once for a
  batch and only a growing patch per sample; `costs` says how far that pays;
- for a program that says what θ puts on every canvas alike, the first convolution's gradient, summed over the samples
  before its backward pass and not after it (`carriers`).

All of it is exact up to rounding, gradients included, those of second order, too. What is prepared is held against the
module on a few batches, the gradient of θ included (`verification`); whatever cannot be exported, folded or verified runs
as the plain module, and `Accelerated.describe` says what was chosen and why. Every choice follows from shapes and weights,
never from a measured time, so a run stays a function of its settings.
"""
