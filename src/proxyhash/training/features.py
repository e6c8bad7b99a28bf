"""Hashing methods fitted on given features."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from proxyhash.codes import pack
from proxyhash.methods import Encoder, HeadEncoder, TrainingData, build_method, check_settings, get_method
from proxyhash.methods.registry import check_data
from proxyhash.models.device import find_device
from proxyhash.models.heads import HeadConfig
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import FeatureSource
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import Trainer, TrainSubset


def fit_method(
    name: str, data: TrainingData, optim: OptimConfig | None = None, *, device: str = "cpu", **settings: Any
) -> Encoder:
    """Fit a method on features.

    Parameters
    ----------
    name
        A name from `list_methods`.
    data
        Features, and labels if the method learns from them.
    optim
        How a head is trained, for methods that train; by default the settings for frozen features.
    device
        Where a head is trained, see `find_device`; methods that do not train run on the CPU.
    **settings
        Settings of the method.

    Returns
    -------
    Encoder

    Raises
    ------
    InputError
        For an unknown method or setting, with a suggestion, and for data that the method cannot learn from.

    Examples
    --------
    >>> features = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    >>> encoder = fit_method("itq", TrainingData(8, features), iterations=10)
    >>> encoder.encode(features).shape
    (50, 1)
    """
    info = get_method(name)
    chosen = check_settings(name, settings)
    check_data(name, data)
    if info.fit is not None:
        return info.fit(data, chosen)
    return _fit_head(name, data, settings, optim or OptimConfig.frozen(), torch.device(find_device(device)))


def _fit_head(
    name: str, data: TrainingData, settings: dict[str, Any], optim: OptimConfig, device: torch.device
) -> HeadEncoder:
    """Train a head on the features with the shared trainer."""
    features = data.load_features()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.seed)
        method = build_method(name, data, settings)
        head = method.build_head(HeadConfig(features.shape[1], data.bits, optim.hidden_dim, optim.dropout))
        with tempfile.TemporaryDirectory(prefix="proxyhash-") as run:
            trainer = Trainer(
                MultiHeadModel(nn.Identity(), [head], [method]),
                optim,
                FeatureSource(features),
                TrainSubset(np.arange(len(features)), data.require_labels().targets()),
                CheckpointManager(Path(run), can_write=False),
                device=device,
                progress=data.progress,
                seed=data.seed,
            )
            model = trainer.fit().cpu()
    trained = model.objectives[0]
    codes = trained.training_codes()
    packed = None if codes is None else pack(codes.numpy() >= 0)
    return HeadEncoder(name, model.heads[0].eval(), packed, trained.proxies())
