// The page for symbols: a statement, a query, and the responses of all names.
import { $, debounced, element, request } from "./common.js";

const EXAMPLES = [
  ["red*cat + blue*dog", "red"],
  ["country*mexico + capital*mexico_city + money*peso", "money"],
  ["agent*mary + verb*gives + object*book + recipient*john", "recipient"],
];
const LEFT = -0.35, RIGHT = 1.35; // responses at the ends of a bar's place
let running = null;
const place = (value) => Math.min(100, Math.max(0, (100 * (value - LEFT)) / (RIGHT - LEFT)));
const decimal = (value) => value.toFixed(2).replace("-", "−");

function showDim() {
  const dim = 2 ** Number($("dim").value);
  $("dim-value").textContent = dim.toLocaleString("en");
  $("dim").setAttribute("aria-valuetext", `${dim} dimensions`);
  return dim;
}

function bar(from, to, className) {
  const made = element("i", { className });
  const [left, right] = [place(Math.min(from, to)), place(Math.max(from, to))];
  made.style.left = `${left}%`;
  made.style.width = `${right - left}%`;
  return made;
}

function answerRow(each, noise) {
  const zero = element("i", { className: "zero" });
  zero.style.left = `${place(0)}%`;
  return element("li", { className: each.present ? "present" : "", children: [
    element("span", { className: "text", text: each.name }),
    element("span", { className: "plot", "aria-hidden": "true", children: [
      bar(-2 * noise, 2 * noise, "band"), zero, bar(0, each.response, each.present ? "bar" : "bar weak")] }),
    element("span", { className: "number", text: decimal(each.response),
      "aria-label": `response ${decimal(each.response)}, ${each.present ? "present" : "absent"}`, role: "img" }),
  ] });
}

function showNames(names) {
  $("names").replaceChildren(...names.slice(0, 40).map((name) => {
    const query = /^\w+$/.test(name) ? name : `"${name}"`;
    const button = element("button", { type: "button", className: "ask", text: name, "aria-label": `Ask ${name}`,
      "aria-pressed": String($("query").value.trim() === query) });
    button.onclick = () => { $("query").value = query; ask(); };
    return button;
  }));
}

async function ask() {
  running?.abort();
  running = new AbortController();
  const dim = showDim(), query = $("query").value.trim();
  try {
    const found = await request("/v1/symbols", { statement: $("statement").value, query, dim }, running.signal);
    const best = found.answers[0];
    showNames(found.names);
    $("answers").replaceChildren(...found.answers.map((each) => answerRow(each, found.noise)));
    $("axis").hidden = !best;
    $("status").className = "answer";
    $("status").replaceChildren(best ? `${query} → ${best.present ? best.name : "nothing"}` : "Ask for a name.",
      element("small", { text: best ? `${best.present ? "" : `best ${best.name}, `}response ${decimal(best.response)}` :
        `${found.names.length} names are in one vector of ${dim} numbers.` }));
    $("noise").textContent = best ? `The striped band is the expected noise: an absent name responds with 0 ± ` +
      `${(2 * found.noise).toFixed(2)} (two standard deviations). Noise ranks a wrong name first with probability ` +
      `${(100 * found.error).toFixed(1)} %. A vector of ${dim} numbers holds ${found.pairs_held} pairs at 3 % errors.` : "";
  } catch (error) {
    if (error.name === "AbortError") return;
    $("status").className = "note error";
    $("status").textContent = error.message;
    $("answers").replaceChildren();
    $("noise").textContent = "";
    $("axis").hidden = true;
  }
}

$("axis").append(element("span"), element("span", { className: "scale", children: [0, 0.5, 1].map((value) => {
  const tick = element("span", { text: String(value) });
  tick.style.left = `${place(value)}%`;
  return tick;
}) }), element("span"));
$("examples").append(...EXAMPLES.map(([statement, query]) => {
  const button = element("button", { type: "button", text: statement });
  button.onclick = () => { $("statement").value = statement; $("query").value = query; ask(); };
  return button;
}));
const soon = debounced(120, ask);
for (const id of ["statement", "query", "dim"]) $(id).addEventListener("input", () => { showDim(); soon(); });
ask();
