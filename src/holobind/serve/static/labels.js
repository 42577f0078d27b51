// The page for labels: labels as you type, why they are there, corrections, and files of many texts.
import { $, debounced, element, percent, request, wait } from "./common.js";

const BATCH_ROWS = 64, MAX_SHOWN_ROWS = 200, MAX_FILE_BYTES = 50_000_000;
let models = [], model = null, labels = [], running = null, explained = "", stopped = false, batchTable = [];
const accepted = new Set(), rejected = new Set(), added = new Set(), explanations = new Map();

const path = (route) => `/v1/models/${encodeURIComponent(model.id)}/${route}`;
const strength = (each) => each.probability ?? Math.min(Math.max(each.score, 0), 1);
const number = (each) => (each.probability === undefined ? each.score.toFixed(2) : percent(each.probability));

/** The text as the model reads it: a text, or features like 12:0.5 40:1. */
function input(text) {
  if (model.reads === "texts") return { text };
  const features = {};
  for (const pair of text.split(/\s+/)) {
    const [key, value] = pair.split(":");
    if (key && value && Number.isFinite(Number(value))) features[key] = Number(value);
  }
  return { features };
}

function options() {
  return { k: Number($("k").value), threshold: Number($("sure").value) / 100, exclude: [...rejected] };
}

function say(text, isError = false) {
  $("message").className = isError ? "note error" : "note";
  $("message").textContent = text;
}

// Labels as you type.

async function predict() {
  running?.abort();
  const text = $("text").value;
  explanations.clear();
  if (!model || !text.trim()) {
    labels = [];
    show("No text yet.");
    return;
  }
  running = new AbortController();
  try {
    const answer = await request(path("predict"), { ...input(text), ...options() }, running.signal);
    const found = answer.predictions[0];
    labels = found.labels;
    show(found.unknown ? `No labels: the text has ${found.unknown}.` :
      `${labels.length} ${labels.length === 1 ? "label" : "labels"}` +
      (labels.length ? `, first ${labels[0].label} (${number(labels[0])})` : " that are as sure"));
    if (explained) explain(explained);
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
  const focused = document.activeElement?.dataset?.label;
  const all = [...[...added].filter((label) => !labels.some((each) => each.label === label))
    .map((label) => ({ label, added: true })), ...labels];
  $("labels").replaceChildren(...all.map(labelRow));
  if (focused !== undefined) {
    [...$("labels").querySelectorAll("button.name")].find((each) => each.dataset.label === focused)?.focus();
  }
  $("rejected-box").hidden = rejected.size === 0;
  $("rejected").replaceChildren(...[...rejected].map((label) => {
    const button = element("button", { type: "button", text: `${label} ×`, "aria-label": `Allow ${label} again` });
    button.onclick = () => { rejected.delete(label); predict(); };
    return element("li", { children: [button] });
  }));
  $("teach").disabled = !(accepted.size || rejected.size || added.size) || !$("text").value.trim();
  if (!labels.length) $("why").hidden = true;
}

function labelRow(each) {
  const { label } = each;
  const bar = element("i", { className: "bar", "aria-hidden": "true" });
  bar.style.width = `${each.added ? 0 : 100 * strength(each)}%`;
  const name = element("button", { type: "button", className: "name", children: [
    bar, element("span", { text: String(label) }),
    element("span", { className: "number", text: each.added ? "added" : number(each) }),
  ] });
  name.dataset.label = String(label);
  if (!each.added) {
    name.title = "Show why";
    name.onmouseenter = () => soonExplain(label);
    name.onfocus = () => soonExplain(label);
    name.onclick = () => explain(label);
  }
  const isAccepted = accepted.has(label) || each.added === true;
  const accept = element("button", { type: "button", className: "mark", text: "✓",
    "aria-pressed": String(isAccepted), "aria-label": `Accept ${label}` });
  accept.onclick = () => {
    if (each.added) added.delete(label);
    else if (!accepted.delete(label)) accepted.add(label);
    show($("status").textContent);
  };
  const reject = element("button", { type: "button", className: "mark", text: "✕", "aria-label": `Exclude ${label}` });
  reject.onclick = () => { accepted.delete(label); added.delete(label); rejected.add(label); predict(); };
  const classes = [isAccepted ? "accepted" : "", label === explained ? "shown" : ""].join(" ").trim();
  return element("li", { className: classes, children: [name, accept, reject] });
}

// Why a label is there.

async function explain(label) {
  explained = label;
  for (const row of $("labels").children) {
    row.classList.toggle("shown", row.querySelector(".name").dataset.label === String(label));
  }
  if (!labels.some((each) => each.label === label)) { $("why").hidden = true; return; }
  try {
    let found = explanations.get(label);
    if (!found) {
      const body = { ...input($("text").value), k: 1, explain: [label] };
      found = (await request(path("predict"), body)).predictions[0].explanations[0];
      explanations.set(label, found);
    }
    if (explained === label) showExplanation(found);
  } catch (error) {
    say(error.message, true);
  }
}

function showExplanation(found) {
  $("why").hidden = false;
  $("why-heading").textContent = `Why ${found.label}`;
  const probability = found.probability === null ? "" : `, probability ${percent(found.probability)}`;
  $("why-numbers").textContent = `rank ${found.rank}, score ${found.score.toFixed(3)}${probability}`;
  const pieces = found.words.length ? found.words :
    found.parts.filter(([kind]) => kind === "feature").flatMap(([, name, value]) => [[name, value], [" ", 0]]);
  const longest = Math.max(...pieces.map(([, value]) => Math.abs(value)), 1e-9);
  $("marked").replaceChildren(...pieces.map(([text, value]) => {
    const share = Math.abs(value) / longest;
    if (share < 0.02) return document.createTextNode(text);
    const mark = element("mark", { text, className: value < 0 ? "against" : "for",
      title: `${value > 0 ? "+" : ""}${value.toFixed(3)}` });
    mark.style.backgroundColor = `rgba(var(--${value < 0 ? "against" : "for"}), ${0.08 + 0.52 * share})`;
    return mark;
  }));
  $("why-method").textContent = found.method.startsWith("exact") ? "The parts add up to the score." : found.method;
  $("near-heading").hidden = found.neighbours.length === 0;
  $("near").replaceChildren(...found.neighbours.slice(0, 6).map((each) => {
    const has = each.has_label ? `has ${found.label}` : `lacks ${found.label}`;
    return element("li", { className: each.has_label ? "has" : "", children: [
      element("b", { text: each.labels.join(", ") || "no labels" }),
      element("span", { className: "note", text: ` row ${each.row}, ${has}; in common: ${each.in_common.join(" ")}` }),
    ] });
  }));
}

const soonExplain = debounced(90, explain);

// Search, copy, teach.

async function search() {
  const query = $("search").value.trim();
  if (!query) { $("found").replaceChildren(); return; }
  try {
    const found = (await request(`${path("labels")}?limit=8&q=${encodeURIComponent(query)}`)).labels;
    if (query !== $("search").value.trim()) return;
    $("found").replaceChildren(...(found.length ? found.map((label) => {
      const add = element("button", { type: "button", text: "Add", "aria-label": `Add ${label}` });
      add.onclick = () => { rejected.delete(label); added.add(label); closeSearch(); };
      const exclude = element("button", { type: "button", text: "Exclude", "aria-label": `Exclude ${label}` });
      exclude.onclick = () => { added.delete(label); rejected.add(label); closeSearch(); };
      return element("li", { children: [element("span", { text: String(label) }), add, exclude] });
    }) : [element("li", { text: "No label has this in its name." })]));
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

const quoted = (value) => {
  const text = String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text; // no formula of a spreadsheet
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const chosen = () => [...[...added].filter((label) => !labels.some((each) => each.label === label))
  .map((label) => ({ label })), ...labels];

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    say("The browser does not let this page write to the clipboard.", true);
  }
}

async function teach() {
  const kept = accepted.size ? [...accepted] : labels.map((each) => each.label);
  const document_ = { ...input($("text").value), labels: [...new Set([...kept, ...added])], rejected: [...rejected] };
  try {
    const answer = await request(path("learn"), { documents: [document_] });
    say(answer.learned ? "Learned." : "Kept: it will be part of the next training.");
  } catch (error) {
    say(error.message, true);
  }
}

// Files.

async function readFile(file, what) {
  if (file.size > MAX_FILE_BYTES) throw new Error(`${file.name} has more than ${MAX_FILE_BYTES / 1e6} MB; ${what}`);
  return file.text();
}

async function openFile(file) {
  if (!file) return;
  try {
    $("text").value = await readFile(file, "open a shorter one");
    predict();
  } catch (error) {
    say(error.message, true);
  }
}

function parseCsv(content, separator) {
  const rows = [];
  let row = [], cell = "", inside = false;
  for (let i = 0; i < content.length; i++) {
    const c = content[i];
    if (inside) {
      if (c !== '"') cell += c;
      else if (content[i + 1] === '"') { cell += '"'; i++; } else inside = false;
    } else if (c === '"' && cell === "") inside = true;
    else if (c === separator) { row.push(cell); cell = ""; }
    else if (c === "\n") { row.push(cell.replace(/\r$/, "")); rows.push(row); row = []; cell = ""; }
    else cell += c;
  }
  if (cell || row.length) { row.push(cell.replace(/\r$/, "")); rows.push(row); }
  return rows;
}

function textsOf(name, content) {
  content = content.replace(/^\ufeff/, "");
  if (/\.(jsonl|ndjson|json)$/i.test(name)) {
    return content.split("\n").filter((line) => line.trim()).map((line, i) => {
      let record = null;
      try { record = JSON.parse(line); } catch { /* said below */ }
      if (typeof record?.text !== "string") throw new Error(`${name}:${i + 1}: expected {"text": "..."}`);
      return record.text;
    });
  }
  if (/\.(csv|tsv)$/i.test(name)) {
    const [header = [], ...rows] = parseCsv(content, /\.tsv$/i.test(name) ? "\t" : ",");
    const column = header.findIndex((cell) => cell.trim().toLowerCase() === "text");
    if (column < 0) throw new Error(`${name}: its first line has no column “text”; found ${header.join(", ").slice(0, 80)}`);
    return rows.map((row) => row[column] ?? "");
  }
  return content.split(/\r?\n/).filter((line) => line.trim());
}

async function batch(file) {
  if (!file) return;
  stopped = false;
  batchTable = [];
  $("rows").replaceChildren();
  $("download").hidden = true;
  try {
    const texts = textsOf(file.name, await readFile(file, "divide it"));
    if (!texts.length) throw new Error(`${file.name} has no texts`);
    Object.assign($("progress"), { hidden: false, value: 0, max: texts.length });
    $("stop").hidden = $("scroll").hidden = false;
    for (let first = 0; first < texts.length && !stopped; first += BATCH_ROWS) {
      await batchPart(texts.slice(first, first + BATCH_ROWS));
      $("progress").value = batchTable.length;
      $("batch-status").textContent = `${batchTable.length} of ${texts.length} texts`;
    }
    $("batch-status").className = "note";
    $("batch-status").textContent = `${batchTable.length} of ${texts.length} texts have their labels` +
      (batchTable.length > MAX_SHOWN_ROWS ? `; the table shows the first ${MAX_SHOWN_ROWS}.` : ".");
  } catch (error) {
    $("batch-status").className = "note error";
    $("batch-status").textContent = error.message;
  } finally {
    $("progress").hidden = $("stop").hidden = true;
    $("download").hidden = batchTable.length === 0;
    $("batch").value = "";
  }
}

async function batchPart(texts) {
  const inputs = texts.map(input);
  const body = model.reads === "texts" ? { text: texts } : { features: inputs.map((each) => each.features) };
  let found = null;
  while (!found) {
    try {
      found = (await request(path("predict"), { ...body, ...options() })).predictions;
    } catch (error) {
      if (error.status !== 429 && error.status !== 503) throw error;
      await wait(error.retryAfter || 1);
    }
  }
  found.forEach((each, i) => {
    batchTable.push([texts[i], each.labels]);
    if (batchTable.length > MAX_SHOWN_ROWS) return;
    const shown = each.labels.map((label) => `${label.label} (${number(label)})`).join(", ");
    $("rows").append(element("tr", { children: [
      element("td", { text: String(batchTable.length) }), element("td", { text: texts[i].slice(0, 200) }),
      element("td", { text: shown || "none" }),
    ] }));
  });
}

function download() {
  const lines = ["text,labels,probabilities"];
  for (const [text, found] of batchTable) {
    lines.push([quoted(text), quoted(found.map((each) => each.label).join("|")),
      quoted(found.map((each) => each.probability ?? each.score).join("|"))].join(","));
  }
  const address = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
  const link = element("a", { href: address, download: "labels.csv" });
  document.body.append(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(address);
}

// The page.

function choose() {
  model = models.find((each) => each.id === $("model").value);
  for (const each of [accepted, rejected, added]) each.clear();
  explained = "";
  $("why").hidden = true;
  $("k").max = Math.min(50, model.labels);
  $("about").textContent = `${model.id}: ${model.labels.toLocaleString("en")} labels, ` +
    `${model.training_rows.toLocaleString("en")} training documents` +
    (model.probabilities ? ", calibrated probabilities." : "; it has scores, not probabilities.") +
    (model.reads === "features" ? " It reads features: write a row like 12:0.5 40:1." : "");
  predict();
}

function sliders() {
  $("k-value").textContent = $("k").value;
  $("sure-value").textContent = `${$("sure").value} %`;
}

const soonPredict = debounced(120, predict), soonSearch = debounced(120, search);
$("text").addEventListener("input", soonPredict);
for (const id of ["k", "sure"]) $(id).addEventListener("input", () => { sliders(); soonPredict(); });
$("search").addEventListener("input", soonSearch);
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { $("search").value = ""; $("found").replaceChildren(); }
});
$("model").addEventListener("change", choose);
$("file").addEventListener("change", () => openFile($("file").files[0]));
$("batch").addEventListener("change", () => batch($("batch").files[0]));
$("stop").addEventListener("click", () => { stopped = true; });
$("download").addEventListener("click", download);
$("teach").addEventListener("click", teach);
$("copy-csv").addEventListener("click", () => copy(["label,probability", ...chosen().map((each) =>
  `${quoted(each.label)},${each.probability ?? each.score ?? ""}`)].join("\n"), "CSV"));
$("copy-json").addEventListener("click", () => copy(JSON.stringify(chosen(), null, 1), "JSON"));
for (const kind of ["dragenter", "dragover"]) {
  $("text").addEventListener(kind, (event) => { event.preventDefault(); $("text").classList.add("over"); });
}
for (const kind of ["dragleave", "drop"]) $("text").addEventListener(kind, () => $("text").classList.remove("over"));
$("text").addEventListener("drop", (event) => {
  const file = event.dataTransfer?.files?.[0];
  if (!file) return;
  event.preventDefault();
  openFile(file);
});
sliders();
try {
  models = (await request("/v1/models")).models;
  $("model").replaceChildren(...models.map((each) => element("option", { value: each.id, text: each.id })));
  choose();
} catch (error) {
  $("about").className = "note error";
  $("about").textContent = error.message;
}
