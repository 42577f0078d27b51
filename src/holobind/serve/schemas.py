"""The typed requests and answers of the API, from which its OpenAPI description is made."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Features = dict[str, float]
MAX_SYMBOL_DIM = 8192


def _whole(value: Any) -> Any:
    """5.0 is a whole number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


class Strict(BaseModel):
    """A request: no unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class PredictRequest(Strict):
    """One or many rows: texts, or features as {"12": 0.5}; one of the two."""

    text: str | list[str] | None = Field(default=None, description="A text, or a list of texts.")
    features: Features | list[Features] | None = Field(
        default=None, description="Values by feature id, or a list of such rows."
    )
    k: Annotated[Whole, Field(ge=1)] = Field(default=5, description="Number of labels for each row.")
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Leave out labels of lower probability; of lower score, if the model has none."
    )
    exclude: list[str | int] = Field(default=[], description="Names or ids of labels that may not be predicted.")
    explain: bool | list[str | int] = Field(
        default=False, description="Explain the labels that are returned, or these labels."
    )


class LabelScore(BaseModel):
    """A label of a row."""

    label: str | int
    score: float
    probability: float | None = None


class Neighbour(BaseModel):
    """A training row that is near."""

    row: int
    weight: float
    adds: float
    has_label: bool
    labels: list[str | int]
    in_common: list[str]


class ExplanationParts(BaseModel):
    """Why a label got its score.

    words: the text in pieces, with what each adds; parts: all other parts that add to the score
    """

    label: str | int
    rank: int
    score: float
    probability: float | None
    method: str
    words: list[tuple[str, float]]
    parts: list[tuple[str, str, float]]
    neighbours: list[Neighbour]


class Prediction(BaseModel):
    """The labels of a row. `unknown` says why it has none: no known word, or no features."""

    labels: list[LabelScore]
    unknown: str | None = None
    explanations: list[ExplanationParts] | None = None


class PredictResponse(BaseModel):
    """Predictions, one for each row."""

    model: str
    version: str
    predictions: list[Prediction]


class ModelInfo(BaseModel):
    """A model that is served."""

    id: str
    version: str
    labels: int
    reads: str
    features: int | None
    probabilities: bool
    label_names: bool
    training_rows: int
    learns: bool
    learned_documents: int
    modified: str
    bytes: int


class ModelList(BaseModel):
    """All models that are served."""

    models: list[ModelInfo]


class LabelList(BaseModel):
    """Labels whose name has the text that was searched."""

    labels: list[str | int]


class LearnDocument(Strict):
    """A document and its labels. A correction of a prediction says which labels were accepted, rejected and added."""

    text: str | None = None
    features: Features | None = None
    labels: list[str | int] = Field(description="All labels that the document should have.")
    rejected: list[str | int] = Field(default=[], description="Labels that were predicted, and are wrong.")


class LearnRequest(Strict):
    """Documents to learn from."""

    documents: list[LearnDocument] = Field(min_length=1)


class LearnResponse(BaseModel):
    """What became of the documents: they are in the journal; `learned` says whether the model has them already."""

    accepted: int
    learned: bool
    version: str


class SymbolRequest(Strict):
    """A statement such as red*cat + blue*dog, and a query such as red."""

    statement: str = Field(max_length=10_000)
    query: str = Field(default="", max_length=1000)
    dim: Annotated[Whole, Field(ge=1, le=MAX_SYMBOL_DIM)] = 512
    seed: Annotated[Whole, Field(ge=0, le=2**31)] = 0


class SymbolAnswer(BaseModel):
    """A candidate name."""

    name: str
    similarity: float
    response: float
    confidence: float
    present: bool


class SymbolResponse(BaseModel):
    """All names with their responses, best first, and the expected noise of a response."""

    names: list[str]
    answers: list[SymbolAnswer]
    noise: float | None
    error: float | None
    pairs_held: int


ProblemObject = {
    "description": "A problem object (RFC 9457)",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                },
            }
        }
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem objects that a route may answer, for its description."""
    return dict.fromkeys((400, 401, 413, 429, 503, 504, *statuses), ProblemObject)
