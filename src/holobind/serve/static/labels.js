// The page for labels: labels as you type, why they are there, and corrections.
import { setUpBatch } from "./batch.js";
import { $, debounced, element, percent, request } from "./common.js";
import { onDrop, quoted, readFile } from "./files.js";
import { showExplanation, showMarks } from "./why.js";

let models = [], model = null, labels = [], running = null, explained = null, teaching = false;
const accepted = new Set(), rejected = new Set(), added = new Set(), explanations = new Map(), rows = new Map();

const path = (route) => `/v1/models/${encodeURIComponent(model.id)}/${route}`;
const strength = (each) => each.probability ?? Math.min(Math.max(each.score, 0), 1);
const number = (each) => (each.probability === undefined ? each.score.toFixed(2) : percent(each.probability));
const options = () => ({ k: Number($("k").value), threshold: Number($("sure").value) / 100, exclude: [...rejected] });
const isShown = (label) => labels.some((each) => each.label === label);
const shown = () => [...[...added].filter((label) => !isShown(label)).map((label) => ({ label, added: true })), ...labels];

/** Rows as the model reads them: texts, or features like 12:0.5 40:1. */
function inputs(texts) {
  if (model.reads === "texts") return { text: texts };
  return { features: texts.map((text) => Object.fromEntries(text.split(/\s+/).map((pair) => pair.split(":"))
    .filter(([key, value]) => key && value && Number.isFinite(Number(value))).map(([key, value]) => [key, Number(value)]))) };
}

function say(text, isError = false) {
  $("message").className = isError ? "note message error" : "note message";
  $("message").textContent = text;
}

// Labels as you type.

async function predict() {
  running?.abort();
  const text = $("text").value;
  explanations.clear();
  showMarks(text);
  $("clear").hidden = !text;
  if (!model || !text.trim()) {
    labels = [];
    for (const each of [accepted, rejected, added]) each.clear();
    show("Write a text to see its labels.");
    return;
  }
  running = new AbortController();
  try {
    const answer = await request(path("predict"), { ...inputs([text]), ...options() }, running.signal);
    const found = answer.predictions[0];
    labels = found.labels;
    show(found.unknown ? `No labels: the text has ${found.unknown}.` :
      labels.length ? `${labels.length} ${labels.length === 1 ? "label" : "labels"}, most probable first` :
      "No label is as sure as that.");
    if (explained !== null) explain(explained);
  } catch (error) {
    if (error.name === "AbortError") return;
    labels = [];
    show("");
    $("status").className = "note error";
    $("status").textContent = error.message;
  }
}

function show(status) {
  $("status").className = "note";
  $("status").textContent = status;
  const focused = document.activeElement?.closest?.("#labels li") ? document.activeElement : null;
  const kept = shown().map(labelRow);
  $("labels").replaceChildren(...kept);
  for (const [label, row] of rows) if (!kept.includes(row)) rows.delete(label);
  if (focused) (focused.isConnected ? focused : $("labels").querySelector(".name"))?.focus();
  $("rejected-box").hidden = rejected.size === 0;
  $("rejected").replaceChildren(...[...rejected].map((label) => {
    const button = element("button", { type: "button", text: `${label} ✕`, "aria-label": `Allow ${label} again` });
    button.onclick = () => { rejected.delete(label); predict(); };
    return element("li", { children: [button] });
  }));
  showLesson();
  for (const id of ["copy-csv", "copy-json"]) $(id).disabled = kept.length === 0;
  if (!labels.length) $("why").hidden = true;
}

/** The row of a label; a label that was shown before keeps its row, so that its bar moves and the focus stays. */
function labelRow(each) {
  const { label } = each;
  if (!rows.has(label)) rows.set(label, newRow(label));
  const row = rows.get(label);
  row.querySelector(".bar").style.width = `${each.added ? 0 : 100 * strength(each)}%`;
  row.querySelector(".number").textContent = each.added ? "added" : number(each);
  const isAccepted = accepted.has(label) || added.has(label);
  row.querySelector(".accept").setAttribute("aria-pressed", String(isAccepted));
  row.classList.toggle("accepted", isAccepted);
  row.classList.toggle("shown", label === explained);
  return row;
}

function newRow(label) {
  const name = element("button", { type: "button", className: "name", children: [
    element("span", { className: "text", text: String(label) }), element("span", { className: "number" }),
    element("span", { className: "track", "aria-hidden": "true", children: [element("i", { className: "bar" })] }),
  ] });
  name.dataset.label = String(label);
  name.onmouseenter = () => soonExplain(label);
  name.onfocus = () => soonExplain(label);
  name.onclick = () => explain(label);
  const accept = element("button", { type: "button", className: "mark accept", text: "✓", title: "Accept",
    "aria-label": `Accept ${label}` });
  accept.onclick = () => {
    if (!added.delete(label) && !accepted.delete(label)) accepted.add(label);
    show($("status").textContent);
  };
  const reject = element("button", { type: "button", className: "mark reject", text: "✕", title: "Reject",
    "aria-label": `Reject ${label}` });
  reject.onclick = () => { accepted.delete(label); added.delete(label); rejected.add(label); predict(); };
  return element("li", { children: [name, accept, reject] });
}

function keys(event) {
  const row = event.target.closest("li");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
  if (next) next.querySelector(".name").focus();
  else if (event.key.toLowerCase() === "a") row.querySelector(".accept").click();
  else if (event.key.toLowerCase() === "x" || event.key === "Delete") {
    (row.nextElementSibling ?? row.previousElementSibling)?.querySelector(".name").focus();
    row.querySelector(".reject").click();
  } else return;
  event.preventDefault();
}

async function explain(label) {
  explained = label;
  for (const [each, row] of rows) row.classList.toggle("shown", each === label);
  const text = $("text").value;
  if (!isShown(label)) { $("why").hidden = true; showMarks(text); return; }
  try {
    let found = explanations.get(label);
    if (!found) {
      found = (await request(path("predict"), { ...inputs([text]), k: 1, explain: [label] })).predictions[0].explanations[0];
      if (text !== $("text").value) return; // the answer to the text as it is now comes later
      explanations.set(label, found);
    }
    if (explained === label) showExplanation(text, found);
  } catch (error) {
    say(error.message, true);
  }
}

const soonExplain = debounced(70, explain);

// Search, copy, teach.

async function search() {
  const query = $("search").value.trim();
  if (!query) { $("found").replaceChildren(); return; }
  try {
    const found = (await request(`${path("labels")}?limit=8&q=${encodeURIComponent(query)}`)).labels;
    if (query !== $("search").value.trim()) return;
    $("found").replaceChildren(...(found.length ? found.map((label) => {
      const add = element("button", { type: "button", text: "Add", "aria-label": `Add ${label}` });
      add.onclick = () => { rejected.delete(label); (isShown(label) ? accepted : added).add(label); closeSearch(); };
      const exclude = element("button", { type: "button", className: "quiet", text: "Reject", "aria-label": `Reject ${label}` });
      exclude.onclick = () => { added.delete(label); accepted.delete(label); rejected.add(label); closeSearch(); };
      return element("li", { children: [element("span", { text: String(label) }), add, exclude] });
    }) : [element("li", { className: "note", text: "No label has this in its name." })]));
  } catch (error) {
    say(error.message, true);
  }
}

function closeSearch() {
  $("search").value = "";
  $("found").replaceChildren();
  $("search").focus();
  predict();
}

async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyOld(text);
    say(`${what} copied.`);
  } catch {
    say("The browser does not let this page write to the clipboard.", true);
  }
}

/** Browsers have no clipboard for pages without HTTPS; a selected field can still be copied. */
function copyOld(text) {
  const field = element("textarea", { "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("not copied");
}

const taught = () => [...new Set([...accepted, ...added])];

function showLesson() {
  const yes = taught(), no = [...rejected];
  $("teach").disabled = teaching || !(yes.length || no.length) || !$("text").value.trim();
  $("lesson").textContent = [yes.length ? `Has ${yes.join(", ")}.` : "", no.length ? `Not ${no.join(", ")}.` : ""]
    .filter(Boolean).join(" ") || "Accept or reject labels to teach the model.";
}

async function teach() {
  teaching = true;
  showLesson();
  say("Teaching …");
  const { text, features } = inputs([$("text").value]);
  const example = { ...(text ? { text: text[0] } : { features: features[0] }), labels: taught(), rejected: [...rejected] };
  try {
    const answer = await request(path("learn"), { documents: [example] });
    for (const each of [accepted, rejected, added]) each.clear();
    say(answer.learned ? "Learned: the model has this document now." : "Kept: it will be part of the next training.");
    if (answer.learned) await refresh();
  } catch (error) {
    say(error.message, true);
  }
  teaching = false;
  predict();
}

// The page.

async function openFile(file) {
  if (!file) return;
  try {
    $("text").value = await readFile(file, "open a shorter one");
    for (const each of [accepted, rejected, added]) each.clear();
    predict();
  } catch (error) {
    say(error.message, true);
  }
}

async function refresh() {
  models = (await request("/v1/models")).models;
  model = models.find((each) => each.id === model?.id) ?? models[0];
  $("model").replaceChildren(...models.map((each) => element("option", { value: each.id, text: each.id })));
  $("model").value = model.id;
  $("k").max = Math.min(50, model.labels);
  $("about").textContent = `${model.labels.toLocaleString("en")} labels from ` +
    `${model.training_rows.toLocaleString("en")} training documents` +
    (model.probabilities ? ", with calibrated probabilities." : "; it has scores, not probabilities.") +
    (model.reads === "features" ? " It reads features: write a row like 12:0.5 40:1." : "");
  sliders();
}

async function choose() {
  model = models.find((each) => each.id === $("model").value);
  for (const each of [accepted, rejected, added, rows]) each.clear();
  explained = null;
  $("why").hidden = true;
  say("");
  await refresh();
  predict();
}

function sliders() {
  $("k-value").textContent = $("k").value;
  $("sure-value").textContent = model && !model.probabilities ? (Number($("sure").value) / 100).toFixed(2) : `${$("sure").value} %`;
}

const soonPredict = debounced(110, predict), soonSearch = debounced(110, search);
$("text").addEventListener("input", () => { showMarks($("text").value); soonPredict(); });
for (const id of ["k", "sure"]) $(id).addEventListener("input", () => { sliders(); soonPredict(); });
$("labels").addEventListener("keydown", keys);
$("search").addEventListener("input", soonSearch);
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { $("search").value = ""; $("found").replaceChildren(); }
  if (event.key === "Enter") $("found").querySelector("button")?.click();
});
$("model").addEventListener("change", choose);
$("open").addEventListener("click", () => $("file").click());
$("clear").addEventListener("click", () => { $("text").value = ""; predict(); $("text").focus(); });
$("file").addEventListener("change", () => { openFile($("file").files[0]); $("file").value = ""; });
$("teach").addEventListener("click", teach);
$("copy-csv").addEventListener("click", () => copy(["label,probability", ...shown().map((each) =>
  `${quoted(each.label)},${each.probability ?? each.score ?? ""}`)].join("\n"), "CSV"));
$("copy-json").addEventListener("click", () => copy(JSON.stringify(shown(), null, 1), "JSON"));
onDrop($("drop"), openFile);
setUpBatch({ path, inputs, options, number });
sliders();
try {
  await refresh();
  predict();
} catch (error) {
  $("about").className = "note error";
  $("about").textContent = error.message;
}
