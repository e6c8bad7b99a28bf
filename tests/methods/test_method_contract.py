"""The contract of every registered method, those of a plugin included."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.digits import digits, retrieval
from helpers.method_losses import BITS, COUNT, FEATURES, NAMES, embeddings, small_data, targets
from helpers.plugins import PLUGIN, own_registry
from proxyhash.evaluation import mean_average_precision
from proxyhash.methods import (
    Encoder,
    HeadEncoder,
    LinearEncoder,
    TrainingData,
    build_method,
    get_method,
    list_methods,
    parse_method,
)
from proxyhash.methods.plugins import load_plugin
from proxyhash.models.heads import HeadConfig
from proxyhash.training.config import OptimConfig
from proxyhash.training.features import fit_method
from proxyhash.utils.errors import InputError

FLOOR = {
    "lsh": 0.25,
    "first-features": 0.25,
    "itq": 0.5,
    "random-rotation": 0.4,
    "bihalf": 0.4,
    "cibhash": 0.5,
    "crovca": 0.5,
    "random": 0.5,
    "learned": 0.6,
}  # what labels add is asked of all others


METHODS = [*list_methods(), "spread", "first-features"]  # the last two are those of a plugin
TRAINS = [*list_methods(trains=True), "spread"]
SUPERVISED = [*(name for name in list_methods() if get_method(name).learns_from != "nothing"), "spread"]
TAKES_TAGS = [*(name for name in list_methods() if get_method(name).learns_from == "classes or tags"), "spread"]

FORMS = [  # other than the defaults
    "bhc:classifier_lr=1:classifier_std=null:tag_loss=mean",
    "ssdh:saturation=1:balance=1:classifier_lr=1:classifier_std=null:tag_loss=mean",
    "greedyhash:bias=true",
    "csq:pairs=0:quantization=0.0001:centers=random",
    "mdsh:loss=softmax:pairs=0:quantization=0:batch_norm=false",
    "mdsh:pairs_from=1",
    "orthohash:batch_norm=false",
    "hashnet:growth=4:samples_per_class=8",
    "dpsh:tanh=true",
    "dsdh:codes=epoch",
    "dqn:pairs=balanced",
    "adsh:start=classes",
    "hbmp-regress:nonnegative=true",
    "mihash:bins=bits:slope=2",
    "drsch:affinity=features",
    "sdh:kernel=raw",
    "shclm:paper",
    "shclm:reassign_every=1",
    "crh:assignment=hungarian",
    "hyp2:threshold=0.2:proxy_lr=5",
    "relahash:beta=50",
    "nested:base=shclm",
    "nested:distill=0:shortest=4",
]
TRAINED_FORMS = [label for label in FORMS if get_method(parse_method(label)[0]).trains]

SHORT = OptimConfig.frozen(epochs=8, hidden_dim=128, batch_size=128)  # of the deep ones: seconds, not minutes


@pytest.fixture(autouse=True, scope="module")
def _plugin() -> Iterator[None]:
    with own_registry():
        load_plugin(PLUGIN)
        yield


def training_data() -> TrainingData:
    return TrainingData.from_arrays(16, digits().train, digits().labels)


@cache
def fitted(label: str) -> Encoder:
    name, settings = parse_method(label)
    return fit_method(name, training_data(), SHORT, **settings)


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("name", METHODS)
def test_method_fits_encodes_saves_and_repeats(name: str, tmp_path: Path) -> None:
    encoder = fitted(name)
    codes = encoder.encode(digits().query)
    assert (encoder.method, encoder.bits, codes.shape) == (name, 16, (len(digits().query), 2))
    assert encoder.metric == get_method(name).metric
    assert encoder.encode_queries(digits().query[:3]).ndim == (2 if encoder.metric == "hamming" else 3)
    assert retrieval(encoder) > FLOOR.get(name, 0.7)

    encoder.save(tmp_path / "method.safetensors")
    kind = LinearEncoder if isinstance(encoder, LinearEncoder) else HeadEncoder
    loaded = kind.load(tmp_path / "method.safetensors")
    np.testing.assert_array_equal(loaded.encode(digits().query), codes)
    np.testing.assert_array_equal(loaded.encode_queries(digits().query), encoder.encode_queries(digits().query))
    assert loaded.method == name

    again = fit_method(name, training_data(), SHORT)
    np.testing.assert_array_equal(again.encode(digits().query), codes)
    assert encoder.encode(digits().query[:0]).shape == (0, 2)


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("label", [*SUPERVISED, *FORMS])
def test_labels_help_more_than_itq(label: str) -> None:
    assert retrieval(fitted(label)) > retrieval(fitted("itq"))


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("label", [*TRAINS, *TRAINED_FORMS])
def test_training_retrieves_held_out_images_better_than_an_untrained_head(label: str) -> None:
    name, settings = parse_method(label)
    torch.manual_seed(0)
    head = build_method(name, training_data(), settings).build_head(HeadConfig(64, 16, SHORT.hidden_dim)).eval()
    assert retrieval(fitted(label)) > retrieval(HeadEncoder(name, head)) + 0.2


@pytest.mark.parametrize("name", METHODS)
def test_method_refuses_settings_and_labels_it_cannot_use(name: str) -> None:
    found = get_method(name)
    with pytest.raises(InputError, match="has no setting 'typo'"):
        fit_method(name, training_data(), typo=1)
    if found.learns_from != "nothing":
        with pytest.raises(InputError, match="learns from labels, and there are none"):
            fit_method(name, TrainingData(8, digits().train))
    if found.learns_from == "classes":
        with pytest.raises(InputError, match="cannot use tags"):
            fit_method(name, TrainingData.from_arrays(8, digits().train, np.ones((len(digits().train), 3), bool)))
    encoder = fit_method("itq", training_data())
    with pytest.raises(InputError, match="of width 64"):
        encoder.encode(digits().query[:, :5])


@pytest.mark.parametrize("name", TAKES_TAGS)
@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
def test_method_learns_from_tags(name: str) -> None:
    tags = np.stack([digits().labels % 2 == 0, digits().labels < 5, digits().labels % 3 == 0, digits().labels == 7], axis=1)
    few = slice(0, 300)
    encoder = fit_method(name, TrainingData.from_arrays(16, digits().train[few], tags[few]), SHORT)
    codes = encoder.encode(digits().train[few])
    queries = encoder.encode_queries(digits().train[few])
    chance = mean_average_precision(np.roll(queries, 1, axis=0), tags[few], codes, tags[few]).value
    assert mean_average_precision(queries, tags[few], codes, tags[few]).value > chance + 0.05


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("kind", ["classes", "tags"])
@pytest.mark.parametrize("name", TRAINS)
def test_loss_head_scores_and_proxies_have_the_documented_shapes(name: str, kind: str) -> None:
    if kind == "tags" and get_method(name).learns_from == "classes":
        pytest.skip("for classes only")
    made = build_method(name, small_data(kind), {})
    head = made.build_head(HeadConfig(6, BITS))
    outputs = head(torch.from_numpy(FEATURES)).detach()
    assert outputs.shape == (COUNT, head.out_features)
    assert head.encode(outputs.numpy()).shape == (COUNT, 1)
    nu = embeddings() if head.metric == "hamming" else outputs.requires_grad_()
    loss = made(nu, targets(kind), torch.arange(COUNT))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    assert nu.grad is not None
    assert nu.grad.abs().sum() > 0
    scores, proxies = made.scores(nu), made.proxies()
    assert scores is None or scores.shape == (COUNT, len(NAMES))
    assert proxies is None or proxies.weights.shape == (len(NAMES), BITS)
    assert made.samples_per_class >= 0
    made.on_epoch_end(nu.detach, head)
    again = build_method(name, small_data(kind), {})
    torch.testing.assert_close(again(nu, targets(kind), torch.arange(COUNT)), loss, rtol=0, atol=0)


def test_unknown_method_is_answered_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean dpsh"):
        get_method("dpshh")
    with pytest.raises(InputError, match="choose from"):
        get_method("zzz")


def test_files_that_are_no_saved_method_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    for kind in (LinearEncoder, HeadEncoder):
        with pytest.raises(InputError, match="There is no file"):
            kind.load(path)
    path.write_bytes(b"not a file of tensors")
    for kind in (LinearEncoder, HeadEncoder):
        with pytest.raises(InputError, match="is not a saved method"):
            kind.load(path)


def test_training_codes_of_adsh_are_saved(tmp_path: Path) -> None:
    encoder = fit_method("adsh", training_data(), SHORT)
    assert isinstance(encoder, HeadEncoder)
    assert encoder.training_codes is not None
    learned = encoder.training_codes, digits().labels
    queries = encoder.encode_queries(digits().query), digits().query_labels
    assert mean_average_precision(*queries, *learned).value > retrieval(encoder) - 0.02
    encoder.save(tmp_path / "adsh.safetensors")
    np.testing.assert_array_equal(HeadEncoder.load(tmp_path / "adsh.safetensors").training_codes, encoder.training_codes)


def test_unknown_head_in_a_file_is_refused(tmp_path: Path) -> None:
    encoder = fit_method("dtsh", training_data(), SHORT)
    encoder.save(tmp_path / "good.safetensors")
    content = (tmp_path / "good.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(b'\\"tanh\\"', b'\\"evil\\"')
    assert header != content[8 : 8 + size]
    (tmp_path / "bad.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    with pytest.raises(InputError, match="There is no head 'evil'"):
        HeadEncoder.load(tmp_path / "bad.safetensors")
