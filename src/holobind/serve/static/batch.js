// Many texts: a file in parts, with progress, and a table to download.
import { $, element, request, wait } from "./common.js";
import { onDrop, quoted, readFile, textsOf } from "./files.js";

const BATCH_ROWS = 64, MAX_SHOWN_ROWS = 200;
let table = [], stopped = false, running = false;

/** page: { path, inputs, options, number }, as the page for labels has them at the time of each request. */
export function setUpBatch(page) {
  $("batch").addEventListener("change", () => run($("batch").files[0], page));
  $("stop").addEventListener("click", () => { stopped = true; });
  $("download").addEventListener("click", download);
  onDrop($("batch-drop"), (file) => run(file, page));
}

function say(text, isError = false) {
  $("batch-status").className = isError ? "note error" : "note";
  $("batch-status").textContent = text;
}

async function run(file, page) {
  if (!file || running) return;
  [table, stopped, running] = [[], false, true];
  $("rows").replaceChildren();
  $("download").hidden = true;
  try {
    const texts = textsOf(file.name, await readFile(file, "divide it"));
    if (!texts.length) throw new Error(`${file.name} has no texts`);
    Object.assign($("progress"), { hidden: false, value: 0, max: texts.length });
    $("stop").hidden = $("scroll").hidden = false;
    for (let first = 0; first < texts.length && !stopped; first += BATCH_ROWS) {
      await part(texts.slice(first, first + BATCH_ROWS), page);
      $("progress").value = table.length;
      say(`${table.length} of ${texts.length} texts`);
    }
    say(`${table.length} of ${texts.length} texts have their labels` +
      (table.length > MAX_SHOWN_ROWS ? `; the table shows the first ${MAX_SHOWN_ROWS}.` : "."));
  } catch (error) {
    say(error.message, true);
  } finally {
    running = false;
    $("progress").hidden = $("stop").hidden = true;
    $("download").hidden = table.length === 0;
    $("batch").value = "";
  }
}

async function part(texts, page) {
  let found = null;
  while (!found) {
    try {
      found = (await request(page.path("predict"), { ...page.inputs(texts), ...page.options() })).predictions;
    } catch (error) {
      if (stopped || (error.status !== 429 && error.status !== 503)) throw error;
      await wait(error.retryAfter || 1);
    }
  }
  found.forEach((each, i) => {
    table.push([texts[i], each.labels]);
    if (table.length > MAX_SHOWN_ROWS) return;
    const chips = each.labels.map((label) =>
      element("li", { className: "chip", text: `${label.label} ${page.number(label)}` }));
    const labels = chips.length ? { children: [element("ul", { className: "chips", children: chips })] } : { text: "none" };
    $("rows").append(element("tr", { children: [
      element("td", { text: String(table.length) }), element("td", { text: texts[i].slice(0, 200) }), element("td", labels),
    ] }));
  });
}

function download() {
  const lines = ["text,labels,probabilities"];
  for (const [text, found] of table) {
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
