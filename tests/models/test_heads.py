"""Every kind of head: built again from what a file says, and codes and queries that agree with each other."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from proxyhash.codes import unpack
from proxyhash.codes.adc import subcode_bits, table_scorer, unpack_subcodes
from proxyhash.evaluation import mean_average_precision
from proxyhash.models.heads import (
    BlockHead,
    DividedHead,
    HashHead,
    Head,
    HeadConfig,
    SoftmaxQuantizedHead,
    UnitQuantizedHead,
    WeightedHead,
    create_head,
    describe_head,
)
from proxyhash.models.heads.base import HEADS
from proxyhash.utils.errors import InputError

FEATURES = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))


def outputs(head: Head) -> np.ndarray:
    with torch.inference_mode():
        found: np.ndarray = head.eval()(FEATURES).numpy()
    return found


@pytest.mark.parametrize("kind", [kind for kind, head in HEADS.items() if head.metric == "hamming"])
def test_head_says_whether_its_outputs_are_bounded(kind: str) -> None:
    torch.manual_seed(1)
    head = create_head({"kind": kind, "in_features": 6, "bits": 16, "hidden_dim": 32})
    for parameter in head.parameters():
        parameter.data.normal_(0, 10)
    for buffer in head.buffers():
        buffer.copy_(1 + 9 * torch.rand(buffer.shape))  # variances and bandwidths are positive
    largest = float(np.abs(outputs(head)).max())
    assert head.is_bounded == (largest <= 1), f"an output is {largest}"


@pytest.mark.parametrize("kind", list(HEADS))
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_head_is_built_again_from_what_a_file_says(kind: str, bits: int) -> None:
    torch.manual_seed(1)
    head = HEADS[kind](HeadConfig(6, bits, hidden_dim=5, out_features=7 if "quantized" in kind else None))
    again = create_head(json.loads(json.dumps(describe_head(head))))
    again.load_state_dict(head.state_dict())
    assert type(again) is type(head)
    found = outputs(head)
    np.testing.assert_array_equal(outputs(again), found)
    assert found.shape == (40, head.out_features)
    assert head.encode(found).shape == (40, (bits + 7) // 8)
    queries = head.encode_queries(found)
    assert (queries.ndim == 2) == (head.metric == "hamming")
    labels = np.arange(40) % 2
    assert 0 < mean_average_precision(queries, labels, head.encode(found), labels).value <= 1


def test_a_description_of_release_0_1_is_read() -> None:
    assert create_head({"width": 6, "bits": 8, "hidden": 4, "dropout": 0.1}).config == HeadConfig(6, 8, 4, 0.1)
    assert isinstance(create_head({"width": 6, "bits": 8}), HashHead)


def test_what_no_head_is_called_is_refused() -> None:
    with pytest.raises(InputError, match="There is no head 'evil'"):
        create_head({"kind": "evil", "width": 6, "bits": 8})
    with pytest.raises(TypeError, match="described by its kind and its sizes"):
        create_head([["width", 6], ["bits", 8]])


def test_weights_are_searched_by() -> None:
    head = WeightedHead(HeadConfig(6, 12))
    head.weights.copy_(torch.arange(12) / 4)
    found = outputs(head)
    bits = unpack(head.encode(found), 12)
    expected = (bits[:, None] != bits) @ (np.arange(12) / 4)
    np.testing.assert_allclose(
        table_scorer(head.encode_queries(found), head.encode(found))(slice(None)), expected, atol=1e-6
    )


def test_blocks_are_one_hot_in_the_database_and_real_in_a_query() -> None:
    head = BlockHead(HeadConfig(6, 12))
    found = outputs(head)
    blocks = found.reshape(40, 2, 64)
    np.testing.assert_allclose(blocks.sum(2), 1, atol=1e-5)
    subcodes = unpack_subcodes(head.encode(found), 2, subcode_bits(12))
    np.testing.assert_array_equal(subcodes, blocks.argmax(2))
    one_hot = np.eye(64)[blocks.argmax(2)].reshape(40, -1)
    np.testing.assert_allclose(
        table_scorer(head.encode_queries(found), head.encode(found))(slice(None)), -found @ one_hot.T, atol=1e-5
    )


def test_a_quantised_head_compares_queries_with_what_codes_stand_for() -> None:
    head = UnitQuantizedHead(HeadConfig(6, 16, out_features=7))
    z = outputs(head)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)
    head.learn_codebooks(z)
    expected = np.square(z[:, None] - head.quantized(z)).sum(2)
    np.testing.assert_allclose(table_scorer(head.encode_queries(z), head.encode(z))(slice(None)), expected, atol=1e-5)
    np.testing.assert_allclose(outputs(SoftmaxQuantizedHead(HeadConfig(6, 16, out_features=7))).sum(1), 1, atol=1e-5)


def test_divided_bits_read_their_own_slice_and_saturate() -> None:
    head = DividedHead(HeadConfig(6, 4))
    with torch.no_grad():
        head.bias.copy_(torch.tensor([9.0, -9.0, 0.0, 0.0]))
        head.slices.mul_(0.1)
    nu = outputs(head)
    assert (nu[:, 0] == 1).all()
    assert (nu[:, 1] == -1).all()
    assert (np.abs(nu[:, 2:]) < 1).any()
    before = outputs(head)
    with torch.no_grad():
        head.slices[2] += 1
    changed = (outputs(head) != before).any(0)
    assert changed.tolist() == [False, False, True, False]
    head.train()(FEATURES).sum().backward()
    assert head.bias.grad is not None
    assert (head.bias.grad > 0).all()  # also of the bits that have saturated


def test_hash_head_takes_sizes_or_a_configuration() -> None:
    torch.manual_seed(0)
    by_sizes = HashHead(6, 16, hidden_dim=5, dropout=0.5)
    torch.manual_seed(0)
    by_config = HashHead(HeadConfig(6, bits=16, hidden_dim=5, dropout=0.5))
    assert by_sizes.config == by_config.config
    assert describe_head(by_sizes) == describe_head(by_config)
    assert by_sizes.state_dict().keys() == by_config.state_dict().keys()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(by_sizes.parameters(), by_config.parameters(), strict=True))


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((6,), {}, r"^bits must be a whole number, not None\.$"),
        ((6, 0), {}, r"^bits must be at least 1, not 0\.$"),
        ((0, 8), {}, r"^in_features must be at least 1, not 0\.$"),
        ((6, 8), {"hidden_dim": -1}, r"^hidden_dim must be at least 0, not -1\.$"),
        ((6, 8), {"dropout": 1}, r"^dropout must be at least 0 and below 1, not 1\.$"),
        ((HeadConfig(6, 8), 8), {}, r"^A HeadConfig has all sizes of a head; give either it or the sizes\.$"),
    ],
)
def test_wrong_sizes_of_a_hash_head_are_one_sentence(arguments: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        HashHead(*arguments, **options)
