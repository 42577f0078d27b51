"""A server is safe by default."""

import pytest

from holobind.errors import OptionError
from holobind.serve import Settings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_needs_no_token(host):
    assert Settings(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "library.example", "localhost.example"])
def test_other_addresses_need_a_token_or_to_be_open(host):
    with pytest.raises(OptionError, match="give a token, or allow everybody with --open"):
        Settings(host=host)
    assert not Settings(host=host, token="x" * 16).is_loopback
    assert not Settings(host=host, open=True).is_loopback


def test_short_tokens_and_all_origins_are_refused():
    with pytest.raises(OptionError, match="at least 16"):
        Settings(token="secret")
    with pytest.raises(OptionError, match="name the origins"):
        Settings(origins=("*",))


def test_a_token_is_not_shown():
    assert "s3cret" not in repr(Settings(token="s3cret" * 4))
