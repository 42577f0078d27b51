"""Routes as Annif has them, so that its clients, and Annif's own `http` backend, get suggestions from holobind.

A model is a project of the same id. A label is a subject: its URI is the label where that is one, or its URI in the
vocabulary of the settings, or urn:holobind:MODEL:ID. A score is the calibrated probability, where the model has one.
"""

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

import holobind
from holobind.serve.api import check_teacher, json_response, learn_documents
from holobind.serve.batching import Ranked
from holobind.serve.languages import LANGUAGES, detect
from holobind.serve.problems import Problem
from holobind.serve.registry import Served, Version
from holobind.serve.schemas import problems
from holobind.serve.service import Service

MAX_BATCH_DOCUMENTS = 32
MAX_FORM_FIELDS = 20
FORM_TYPE = "application/x-www-form-urlencoded"
DEFAULT_LIMIT = 10
Limit = Annotated[int, Query(ge=1, description="Number of suggestions.")]
Threshold = Annotated[float, Query(ge=0, le=1, description="Leave out suggestions of a lower score.")]
Language = Annotated[str | None, Query(max_length=20, description="Language of the labels.")]
TAGS = ["Annif"]


class SuggestForm(BaseModel):
    """The fields of a form; others, such as the project that Annif's backend names, mean nothing here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    text: str
    limit: int = Field(default=DEFAULT_LIMIT, ge=1)
    threshold: float = Field(default=0.0, ge=0, le=1)
    language: str | None = Field(default=None, max_length=20)


FORM_BODY = {
    "requestBody": {"required": True, "content": {FORM_TYPE: {"schema": SuggestForm.model_json_schema()}}},
}


class Document(BaseModel):
    """A text of a batch."""

    model_config = ConfigDict(extra="ignore")
    document_id: str | None = None
    text: str


class Batch(BaseModel):
    """Documents to make suggestions for."""

    documents: list[Document] = Field(max_length=MAX_BATCH_DOCUMENTS)


class Subject(BaseModel):
    """A subject of a document; the URI counts, or else the label."""

    model_config = ConfigDict(extra="ignore")
    uri: str | None = None
    label: str | None = None


class IndexedDocument(BaseModel):
    """A text with its subjects."""

    model_config = ConfigDict(extra="ignore")
    text: str
    subjects: list[Subject]


class LanguageRequest(BaseModel):
    """A text, and the languages that it may have."""

    text: str
    languages: list[str] = Field(max_length=50)


class Subjects:
    """URIs and names of the labels of a version of a model."""

    def __init__(self, version: Version, vocabulary: dict[str, str]) -> None:
        self.version, self.vocabulary = version, vocabulary
        self.uris = {name: uri for uri, name in vocabulary.items()}
        self.labels = {self.uri(i): i for i in range(version.model.n_labels)}

    def uri(self, i: int) -> str:
        label = str(self.version.names[i])
        if label in self.vocabulary or "://" in label or label.startswith("urn:"):
            return label
        return self.uris.get(label, f"urn:holobind:{self.version.id}:{i}")

    def name(self, i: int) -> str:
        label = str(self.version.names[i])
        return self.vocabulary.get(label, label)


def routes(service: Service) -> APIRouter:
    """The routes /v1/, /v1/vocabs, /v1/projects ..., /v1/detect-language."""
    router = APIRouter(prefix="/v1", tags=[*TAGS], responses=problems())
    known: dict[str, tuple[Version, Subjects]] = {}

    def subjects_of(version: Version) -> Subjects:
        if version.id not in known or known[version.id][0] is not version:
            known[version.id] = version, Subjects(version, service.vocabulary)
        return known[version.id][1]

    def project_of(name: str) -> Served:
        found = service.registry.get(name)
        if found is None:
            raise Problem(404, f"Project {name[:60]!r} not found", title="Project not found")
        return found

    def describe(served: Served) -> dict[str, Any]:
        version, language = served.current, service.settings.language
        return {
            "project_id": served.id,
            "name": served.id,
            "language": language,
            "backend": {"backend_id": "holobind"},
            "vocab": describe_vocabulary(version),
            "vocab_language": language,
            "is_trained": True,
            "modification_time": version.modified.isoformat(),
        }

    def describe_vocabulary(version: Version) -> dict[str, Any]:
        size = version.model.n_labels
        return {"vocab_id": version.id, "languages": [service.settings.language], "size": size, "loaded": True}

    def check_language(language: str | None) -> None:
        if language not in (None, "", service.settings.language):
            allowed = service.settings.language
            raise Problem(400, f"labels have the language {allowed!r}; got {language[:20]!r}", title="Bad Request")

    def results(version: Version, ranked: Ranked, threshold: float) -> list[list[dict[str, Any]]]:
        subjects, ranking = subjects_of(version), ranked.ranking
        scores = ranking.scores.clip(0, 1) if ranking.probabilities is None else ranking.probabilities
        return [
            [
                {"uri": subjects.uri(i), "label": subjects.name(i), "notation": None, "score": score}
                for i, score in zip(ids, (round(score, 6) for score in row), strict=True)
                if score >= threshold and score > 0 and not empty
            ]
            for ids, row, empty in zip(ranking.ids.tolist(), scores.tolist(), ranked.empty, strict=True)
        ]

    @router.get("/")
    async def show_info() -> Any:
        """What serves this API, and its version."""
        return {"title": "Annif REST API, by holobind", "version": holobind.__version__}

    @router.get("/vocabs")
    async def list_vocabs() -> Any:
        """The labels of each model, as a vocabulary."""
        return {"vocabs": [describe_vocabulary(served.current) for served in service.registry]}

    @router.get("/projects")
    async def list_projects() -> Any:
        """All models, as projects."""
        return {"projects": [describe(served) for served in service.registry]}

    @router.get("/projects/{project_id}", responses=problems(404))
    async def show_project(project_id: str) -> Any:
        """One model, as a project."""
        return describe(project_of(project_id))

    @router.post("/projects/{project_id}/suggest", responses=problems(404, 415, 422), openapi_extra=FORM_BODY)
    async def suggest(project_id: str, request: Request) -> Response:
        """Suggestions for a text."""
        form = await read_form(request)
        check_language(form.language)
        version = project_of(project_id).current
        texts = service.texts(version, [form.text])
        ranked = await service.rank(version, texts, min(form.limit, service.settings.max_k))
        return json_response({"results": results(version, ranked, form.threshold)[0]})

    @router.post("/projects/{project_id}/suggest-batch", responses=problems(404, 422))
    async def suggest_batch(
        project_id: str,
        body: Batch,
        limit: Limit = DEFAULT_LIMIT,
        threshold: Threshold = 0.0,
        language: Language = None,
    ) -> Response:
        """Suggestions for at most 32 texts."""
        check_language(language)
        version = project_of(project_id).current
        if not body.documents:
            return json_response([])
        texts = service.texts(version, [document.text for document in body.documents])
        ranked = await service.rank(version, texts, min(limit, service.settings.max_k))
        found = zip(body.documents, results(version, ranked, threshold), strict=True)
        return json_response([{"document_id": document.document_id, "results": each} for document, each in found])

    @router.post("/projects/{project_id}/learn", status_code=204, responses=problems(403, 404, 422, 501))
    async def learn(project_id: str, body: list[IndexedDocument], request: Request) -> Response:
        """Keep documents with their subjects, and learn them; needs a token."""
        check_teacher(service, request)
        served = project_of(project_id)
        subjects = subjects_of(served.current)
        documents = []
        for document in body:
            labels = [_label(subjects, subject) for subject in document.subjects]
            documents.append({"text": document.text, "labels": labels})
        await learn_documents(service, served, documents)
        return Response(status_code=204)

    @router.post("/detect-language", responses=problems(422))
    async def detect_language(body: LanguageRequest) -> Any:
        """Which of some languages a text has."""
        unknown = [code for code in body.languages if code not in LANGUAGES]
        if unknown or not body.languages:
            got = f"got {unknown[0][:20]!r}" if unknown else "got none"
            raise Problem(400, f"languages are among {', '.join(sorted(LANGUAGES))}; {got}", title="Bad Request")
        found = detect(body.text, body.languages)
        return {"results": [{"language": code, "score": round(score, 6)} for code, score in found]}

    return router


async def read_form(request: Request) -> SuggestForm:
    """The form that a request has as its body."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Problem(415, f"send a form: {FORM_TYPE}")
    try:
        content = (await request.body()).decode()
        fields = parse_qsl(content, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    except ValueError as error:
        raise Problem(400, f"the form cannot be read: {error}") from error
    try:
        return SuggestForm.model_validate(dict(fields))
    except ValidationError as error:
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in error.errors()]) from error


def _label(subjects: Subjects, subject: Subject) -> str | int:
    """The model's label of a subject; a subject that the model does not know is a new label."""
    uri = (subject.uri or "").removeprefix("<").removesuffix(">")
    if uri in subjects.labels:
        return subjects.version.names[subjects.labels[uri]]
    if not uri and not subject.label:
        raise Problem(422, "a subject has a URI, or a label")
    return subject.label or uri
