"""Names of labels from vocabularies in TSV and CSV."""

import pytest

from holobind import data
from holobind.data.tables.vocabulary import named_labels, read_vocabulary
from holobind.errors import DataError

TSV = "<http://ex.org/1>\tcheese\n<http://ex.org/2>\tbank\t42.1\n\n<http://ex.org/3>\tbank\n<http://ex.org/4>\t\n"
CSV = 'uri,label_en,label_fr,notation\nhttp://ex.org/1,cheese,fromage,\nhttp://ex.org/2,"bank, river",rive,4\n'


def test_both_formats_are_read(tmp_path):
    (tmp_path / "v.tsv").write_text(TSV)
    (tmp_path / "v.csv").write_text(CSV)
    assert read_vocabulary(tmp_path / "v.tsv")["http://ex.org/2"] == "bank"
    assert read_vocabulary(tmp_path / "v.csv") == {"http://ex.org/1": "cheese", "http://ex.org/2": "bank, river"}


def test_labels_of_one_name_stay_apart_and_others_keep_their_uri(tmp_path):
    (tmp_path / "v.tsv").write_text(TSV)
    labels = [f"http://ex.org/{i}" for i in range(1, 6)]
    found = named_labels(labels, read_vocabulary(tmp_path / "v.tsv"))
    assert found[0] == "cheese" and found[3:] == labels[3:]
    assert found[1:3] == ["bank <http://ex.org/2>", "bank <http://ex.org/3>"]


def test_load_names_labels_by_option_or_by_a_file_in_the_directory(tmp_path):
    (tmp_path / "train.tsv").write_text(
        "brie\t<http://ex.org/1>\nloan and river\t<http://ex.org/2> <http://ex.org/1>\n"
    )
    (tmp_path / "names.tsv").write_text(TSV)
    assert data.load(tmp_path).label_names == ["http://ex.org/1", "http://ex.org/2"]
    assert data.load(tmp_path / "train.tsv", label_names=tmp_path / "names.tsv").label_names == ["cheese", "bank"]
    (tmp_path / "names.tsv").rename(tmp_path / "vocabulary.tsv")
    assert data.load(tmp_path).label_names == ["cheese", "bank"]


@pytest.mark.parametrize("content", ["just one column\n", "uri,name\nhttp://a,x\n", '"uri","label_en"\n"a\n'])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "v.tsv").write_text(content)
    with pytest.raises(DataError, match=r"v.tsv"):
        read_vocabulary(tmp_path / "v.tsv")
