"""Random numbers from counters."""

import torch
from torch.testing import assert_close

from holobind.codebooks._philox import phases, philox


def test_philox_gives_the_published_answers():
    """The known answers of the authors' own library, Random123, for ten rounds of four 32-bit words."""
    for counter, key, answer in [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]:
        assert [int(word) for word in philox(tuple(map(torch.tensor, counter)), tuple(key))] == answer


def test_phases_are_uniform():
    angle = torch.view_as_complex(phases(3, torch.arange(4000), 33)).angle() / (2 * torch.pi) % 1
    histogram = torch.histc(angle[:, 1:].flatten(), 64, 0, 1) / (4000 * 16 / 64)
    assert_close(histogram, torch.ones(64), atol=0.15, rtol=0)
