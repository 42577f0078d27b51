"""The route of the page for symbols: a statement, a query, and how strongly every name responds."""

import math
from typing import Any

from fastapi import APIRouter

from holobind.serve import schemas
from holobind.serve.problems import Problem
from holobind.serve.service import Service

MAX_NAMES = 200  # of a statement
MAX_ELEMENTS = 1 << 20  # of all vectors of a request
ERROR_RATE = 0.03  # of answers, for the number of pairs that a vector holds: the paper's


def routes(service: Service) -> APIRouter:
    """The route /v1/symbols."""
    router = APIRouter()

    @router.post(
        "/v1/symbols", tags=["symbols"], response_model=schemas.SymbolResponse, responses=schemas.problems(422)
    )
    async def ask(request: schemas.SymbolRequest) -> Any:
        """Encode a statement as one vector, and query it."""
        return await service.batcher.run(lambda: answer(request))

    return router


def answer(request: schemas.SymbolRequest) -> dict[str, Any]:
    """The responses of all names to a query; without a query, the names alone."""
    from holobind.symbols import expression
    from holobind.symbols.capacity import pairs_held
    from holobind.symbols.vocabulary import Vocabulary

    expression.parse(request.statement)
    names = expression.names(request.statement)
    if len(names) > MAX_NAMES or len(names) * request.dim > MAX_ELEMENTS:
        raise Problem(
            422,
            f"a statement has at most {MAX_NAMES} names, and {MAX_ELEMENTS:,} numbers in all vectors; got "
            f"{len(names)} names of {request.dim} dimensions",
        )
    vocabulary = Vocabulary(request.dim, request.seed)
    statement = vocabulary.parse(request.statement)
    held = pairs_held(request.dim, ERROR_RATE)
    if not request.query.strip():
        return {"names": names, "answers": [], "noise": None, "error": None, "pairs_held": held}
    answers = vocabulary.ask(statement, request.query, len(vocabulary))
    # The norm of a unitary vector is 1: the response of an absent name has the standard deviation |statement|/sqrt(d).
    noise = float(statement.norm()) / math.sqrt(request.dim)
    found = [
        {
            "name": each.name,
            "similarity": round(each.similarity, 4),
            "response": round(each.response, 4),
            "confidence": round(each.confidence, 4),
            "present": each.present,
        }
        for each in answers
    ]
    return {"names": names, "answers": found, "noise": noise, "error": answers[0].error, "pairs_held": held}
