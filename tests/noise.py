"""Pictures of noise, and θ of noise, for tests of programs."""

import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pictures(size, count=2, seed=0):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def set_theta(program, seed=0):
    with torch.no_grad():
        program.theta.normal_(generator=torch.Generator().manual_seed(seed))
    return program


def normalised(images):
    return (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
