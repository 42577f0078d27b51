"""The language of a text, detected by its most frequent words.

The score of a language is the share of the words of the text that are among its function words (articles, pronouns,
prepositions, conjunctions), divided by `TYPICAL_SHARE`, which running text reaches, and at most 1. It is enough to tell
languages apart in a few sentences; a title of three nouns has no function word, and no language.
"""

import re
from collections.abc import Sequence

TYPICAL_SHARE = 0.35
MAX_CHARACTERS = 20_000  # of a text, which are read
WORD = re.compile(r"[^\W\d_]+")

FUNCTION_WORDS = {
    "en": "the of and to in a is that it for was on with as be by at this are from or an which not have had but they "
    "his her she he you we were been has their its will would can there what all if who when so no more about into",
    "de": "der die das und in den von zu mit ist im für des auf dem nicht ein eine als auch es an werden aus er hat "
    "dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis",
    "fr": "le la les de des du et en un une est que qui dans pour sur au par avec il elle ne pas plus ce se sont son "
    "sa ses aux mais ou nous vous ils été cette ces leur leurs être à où comme tout entre sans",
    "es": "el la los las de del y en un una que es por con para se su al lo como más pero sus le ya o este sí porque "
    "esta entre cuando muy sin sobre también me hasta hay donde han no son fue",
    "it": "il lo la i gli le di del della dei delle e in un una che è per con si da dal al alla non sono come più ma "
    "anche nel nella ha questo questa loro suo sua tra se dalla degli o",
    "nl": "de het een en van in is dat op te voor met zijn die aan niet er om ook als door bij uit naar over dan maar "
    "werd deze wordt hij nog kan meer ze of tot wat worden hun was heeft",
    "pt": "o a os as de do da dos das e em no na um uma que é por com para se seu sua ao mais como mas foi não são "
    "pelo pela ou quando muito nos já também só até isso ela entre",
    "sv": "och i att det som en på är av för med till den har de inte om ett han men var sig så från vi kan när år "
    "under också efter eller nu sin där vid mot ska skulle kommer ut får finns",
    "da": "og i at det som en på er af for med til den har de ikke om et han men var sig så fra vi kan når år under "
    "også efter eller nu sin der ved mod skal ville kommer ud får blev jeg",
    "no": "og i at det som en på er av for med til den har de ikke om et han men var seg så fra vi kan når år under "
    "også etter eller nå sin der ved mot skal ville kommer ut får ble jeg",
    "fi": "ja on ei että se oli hän mutta ovat kun joka myös kuin sen jos mukaan ole tai ollut niin hänen vain kanssa "
    "sekä jotka sitä nyt jo voi olla mitä tämä siitä tämän ne vielä noin",
    "et": "ja on ei et see oli ta aga kui mis ka kes oma ning selle siis või mida tema nii olid seda nad veel nende "
    "välja pole sest siin",
    "pl": "i w na z do że się nie to jest o jak po od za przez ale przy tym które który są była był dla oraz co jego "
    "jej ich tak już tylko może",
    "cs": "a v na se je že s z do o to i jako za pro by ale po byl která které který jsou od nebo při také jeho až "
    "podle jen aby",
}
LANGUAGES = {code: frozenset(words.split()) for code, words in FUNCTION_WORDS.items()}


def detect(text: str, languages: Sequence[str]) -> list[tuple[str | None, float]]:
    """The score of each of some languages, the best first, and of None: that it is none of them."""
    words = [word.lower() for word in WORD.findall(text[:MAX_CHARACTERS])]
    shares = {code: sum(word in LANGUAGES[code] for word in words) / max(len(words), 1) for code in languages}
    best_first = sorted(shares, key=lambda code: -shares[code])
    scores: list[tuple[str | None, float]] = [(code, min(shares[code] / TYPICAL_SHARE, 1.0)) for code in best_first]
    return [*scores, (None, 1.0 - max((score for _, score in scores), default=0.0))]
