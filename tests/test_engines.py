"""The lines for Spark and Dask in docs/scaling.md, as they are there, on local engines where these are installed."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
SPARK = 'df.mapInPandas(predict, "id long, labels array<string>")'
DASK = 'ddf.map_partitions(lambda frame: next(predict([frame])), meta={"id": int, "labels": object})'
TEXTS = ["a red apple", "the blue car", "red apple", "blue", "apple"]
WANTED = [["fruit"], ["vehicle"], ["fruit"], ["vehicle"], ["fruit"]]


@pytest.fixture
def predict(tmp_path, monkeypatch):
    """The function of the page; its model is in the current directory."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {}
    exec(next(block for block in blocks if "def predict(frames)" in block), names)
    return names["predict"]


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_maps_the_function_of_the_page_over_partitions(predict, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    assert f"`{SPARK}`" in PAGE.read_text()
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", str(tmp_path)).getOrCreate()
    try:
        df = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string").repartition(2)
        rows = eval(SPARK, {"df": df, "predict": predict}).collect()
    finally:
        spark.stop()
    assert [row.labels for row in sorted(rows, key=lambda row: row.id)] == WANTED


def test_dask_maps_the_function_of_the_page_over_partitions(predict):
    dd = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    pd = pytest.importorskip("pandas")
    assert f"`{DASK}`" in PAGE.read_text()
    ddf = dd.from_pandas(pd.DataFrame({"id": range(5), "text": TEXTS}), npartitions=2)
    found = eval(DASK, {"ddf": ddf, "predict": predict}).compute()
    assert found["id"].tolist() == list(range(5))
    assert [list(labels) for labels in found["labels"]] == WANTED
