"""The routes of the API: /v1/models, /healthz, /readyz, /metrics."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse, Response

from holobind.label_filter import Label, label_ids
from holobind.serve import metrics, schemas
from holobind.serve.guard import check_token
from holobind.serve.problems import Problem
from holobind.serve.registry import Served, Version
from holobind.serve.rows import check_characters, label_rows
from holobind.serve.service import CANNOT_LEARN, Service

MAX_SEARCH_RESULTS = 100


def routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter()

    @router.get("/healthz", tags=["operation"], response_class=PlainTextResponse)
    async def healthz() -> str:
        """Whether the process lives."""
        return "ok\n"

    @router.get("/readyz", tags=["operation"], response_class=PlainTextResponse, responses=schemas.problems())
    async def readyz() -> str:
        """Whether requests are answered: the models are loaded, and the server does not shut down."""
        if not service.ready:
            raise Problem(503, "the server starts or stops", retry_after=1)
        return "ready\n"

    @router.get("/metrics", tags=["operation"], response_class=PlainTextResponse, responses=schemas.problems())
    async def show_metrics() -> Response:
        """Metrics in Prometheus' text format."""
        text = service.metrics.text(service.registry, service.batcher.queued_rows)
        return Response(text, media_type=metrics.CONTENT_TYPE)

    @router.get("/v1/models", tags=["models"], response_model=schemas.ModelList, responses=schemas.problems())
    async def list_models() -> Any:
        """All models."""
        return {"models": [served.current.describe() for served in service.registry]}

    @router.get(
        "/v1/models/{model_id}", tags=["models"], response_model=schemas.ModelInfo, responses=schemas.problems(404)
    )
    async def show_model(model_id: str) -> Any:
        """One model."""
        return service.served(model_id).current.describe()

    @router.get(
        "/v1/models/{model_id}/labels",
        tags=["models"],
        response_model=schemas.LabelList,
        responses=schemas.problems(404, 422),
    )
    async def search_labels(
        model_id: str,
        q: Annotated[str, Query(min_length=1, max_length=200, description="A part of the name.")],
        limit: Annotated[int, Query(ge=1, le=MAX_SEARCH_RESULTS)] = 20,
    ) -> Any:
        """Labels whose name has a text."""
        return {"labels": service.served(model_id).current.search(q, limit)}

    @router.post(
        "/v1/models/{model_id}/predict",
        tags=["models"],
        response_model=schemas.PredictResponse,
        responses=schemas.problems(404, 422),
    )
    async def predict(model_id: str, request: schemas.PredictRequest) -> Response:
        """The labels of one or many rows, with probabilities, and why they got them."""
        version = service.served(model_id).current
        inputs, n_rows = _inputs(service, version, request)
        n_explained = len(request.explain) if isinstance(request.explain, list) else request.k
        if request.explain and n_rows * n_explained > service.settings.max_explained:
            limit = service.settings.max_explained
            raise Problem(422, f"a request has at most {limit} explanations, got {n_rows} rows x {n_explained} labels")
        ranked = await service.rank(version, inputs, request.k, request.exclude)
        predictions = label_rows(version, ranked, request.threshold)
        if request.explain:
            for i, row in enumerate(predictions):
                chosen: list[Label] = (
                    request.explain if isinstance(request.explain, list) else [each["label"] for each in row["labels"]]
                )
                one = [inputs[i]] if isinstance(inputs, list) else inputs[[i]]
                row["explanations"] = await service.explain(version, one, chosen) if chosen else []
        return json_response({"model": version.id, "version": version.digest[:16], "predictions": predictions})

    @router.post(
        "/v1/models/{model_id}/learn",
        tags=["models"],
        status_code=202,
        response_model=schemas.LearnResponse,
        responses=schemas.problems(403, 404, 422, 501),
    )
    async def learn(model_id: str, body: schemas.LearnRequest, request: Request) -> Any:
        """Keep documents with their labels, or corrections, and learn them; needs a token."""
        check_teacher(service, request)
        served = service.served(model_id)
        documents = [each.model_dump(exclude_none=True) for each in body.documents]
        learned = await learn_documents(service, served, documents)
        return {"accepted": len(documents), "learned": learned, "version": served.current.digest[:16]}

    @router.post(
        "/v1/models/{model_id}/reload",
        tags=["models"],
        response_model=schemas.ModelInfo,
        responses=schemas.problems(403, 404, 409),
    )
    async def reload(model_id: str, request: Request) -> Any:
        """Read the model file again, without dropping a request; needs a token."""
        check_teacher(service, request)
        return (await service.reload(service.served(model_id))).describe()

    return router


async def learn_documents(service: Service, served: Served, documents: list[dict[str, Any]]) -> bool:
    """Check documents, keep and learn them; whether they are learned. A `Problem` with status 501 without a journal."""
    if service.journal is None:
        raise Problem(501, CANNOT_LEARN)
    version, model = served.current, served.current.model
    service.check_rows(len(documents))
    for document in documents:
        if ("text" in document) == ("features" in document):
            raise Problem(422, "each document has a text, or features")
        if "text" in document:
            service.texts(version, [document["text"]])
        else:
            service.features(version, [document["features"]])
        for field in ("labels", "rejected"):
            check_characters(document.get(field, []))
            known = [label for label in document.get(field, []) if isinstance(label, int) or field == "rejected"]
            label_ids(field, known, model.n_labels, model.label_names)  # a name that is new is a new label
    return await service.learn(served, documents)


def json_response(value: Any) -> Response:
    """A value as JSON, without the checks of its type that the description has."""
    return Response(json.dumps(value, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


def _inputs(service: Service, version: Version, request: schemas.PredictRequest) -> tuple[Any, int]:
    if (request.text is None) == (request.features is None):
        raise Problem(422, "a request has a text, or features; send one of them")
    if request.text is not None:
        texts = [request.text] if isinstance(request.text, str) else request.text
        return service.texts(version, texts), len(texts)
    assert request.features is not None
    rows = [request.features] if isinstance(request.features, dict) else request.features
    return service.features(version, rows), len(rows)


def check_teacher(service: Service, request: Request) -> None:
    """Only who has the token may change what the server answers."""
    if service.settings.token is None:
        raise Problem(403, "to change models, start the server with --token; SIGHUP reads model files again")
    check_token(service.settings.token, request.headers)
