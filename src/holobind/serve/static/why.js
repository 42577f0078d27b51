// Why a label is there: words marked in the text, what each adds to the score, and the nearest training documents.
import { $, element, percent } from "./common.js";

const MAX_WORDS = 8, MAX_NEIGHBOURS = 6, MIN_SHARE = 0.03;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

/** The text under the field, with the words of an explanation marked where it is of this text. */
export function showMarks(text, found = null) {
  const pieces = found?.words ?? [];
  const same = pieces.map(([piece]) => piece).join("") === text;
  const largest = Math.max(...pieces.map(([, value]) => Math.abs(value)), 1e-9);
  // The empty line at the end of a text has a height of its own.
  $("marked").replaceChildren(...(same ? pieces.map(([piece, value]) => {
    const share = Math.abs(value) / largest;
    if (share < MIN_SHARE) return document.createTextNode(piece);
    const mark = element("mark", { text: piece, className: value < 0 ? "against" : "for" });
    mark.style.backgroundColor = `rgba(var(--${value < 0 ? "against" : "for"}), ${0.1 + 0.5 * share})`;
    return mark;
  }) : [document.createTextNode(text)]), document.createTextNode("\u200b"));
}

/** What each word adds, the words of most weight first; equal words are one. */
function sums(found) {
  const pieces = found.words.length ? found.words :
    found.parts.filter(([kind]) => kind === "feature").map(([, name, value]) => [name, value]);
  const byWord = new Map();
  for (const [piece, value] of pieces) {
    const word = piece.trim().toLowerCase();
    if (word && value) byWord.set(word, (byWord.get(word) ?? 0) + value);
  }
  return [...byWord].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, MAX_WORDS);
}

function wordRow([word, value], largest) {
  // A quarter of the width is for what is taken away.
  const length = (Math.abs(value) / largest) * (value < 0 ? 25 : 75);
  const bar = element("i", { className: value < 0 ? "against" : "for" });
  bar.style.left = `${value < 0 ? 25 - length : 25}%`;
  bar.style.width = `${length}%`;
  return element("li", { children: [
    element("span", { className: "text", text: word }),
    element("span", { className: "half", "aria-hidden": "true", children: [bar] }),
    element("span", { className: "number", text: signed(value) }),
  ] });
}

function neighbourRow(each, label) {
  const chips = each.labels.slice(0, 12).map((name) =>
    element("li", { className: name === label ? "chip this" : "chip", text: String(name) }));
  if (each.labels.length > 12) chips.push(element("li", { className: "chip", text: `+ ${each.labels.length - 12}` }));
  const words = each.in_common.filter((word) => !word.endsWith("*"));
  const shared = (words.length ? words : each.in_common).join(", ");
  return element("li", { children: [
    element("ul", { className: "chips", "aria-label": `Labels of training row ${each.row}`, children: chips }),
    element("span", { className: "note", text: `row ${each.row}` + (shared ? ` · in common: ${shared}` : "") +
      ` · ${each.has_label ? "has" : "lacks"} ${label}, ${signed(each.adds)}` }),
  ] });
}

export function showExplanation(text, found) {
  $("why").hidden = false;
  $("why-heading").textContent = `Why ${found.label}`;
  const probability = found.probability === null ? "" : ` · ${percent(found.probability)}`;
  $("why-numbers").textContent = `rank ${found.rank} · score ${found.score.toFixed(3)}${probability}`;
  showMarks(text, found);
  const words = sums(found);
  const largest = Math.max(...words.map(([, value]) => Math.abs(value)), 1e-9);
  $("words").replaceChildren(...words.map((each) => wordRow(each, largest)));
  $("words").hidden = words.length === 0;
  const others = found.parts.filter(([kind]) => !["word", "feature"].includes(kind)).slice(0, 3)
    .map(([kind, name, value]) => `${name || kind} ${signed(value)}`);
  $("why-method").textContent = [found.method.startsWith("exact") ? "All parts add up to the score." : found.method,
    others.length ? `Beside words and documents: ${others.join(", ")}.` : ""].filter(Boolean).join(" ");
  $("near-box").hidden = found.neighbours.length === 0;
  $("near").replaceChildren(...found.neighbours.slice(0, MAX_NEIGHBOURS).map((each) => neighbourRow(each, found.label)));
}
