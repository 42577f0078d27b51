// The page for symbols: a statement, a query, and the responses of all names.
import { $, debounced, element, request } from "./common.js";

let running = null;
const SCALE = 1.25; // the response at the right end of a bar; the left end is minus a fifth of it
const place = (value) => (100 * (value + SCALE / 5)) / (SCALE * 1.2);

function showDim() {
  const dim = 2 ** Number($("dim").value);
  $("dim-value").textContent = dim;
  $("dim").setAttribute("aria-valuetext", `${dim} dimensions`);
  return dim;
}

function bar(from, to, className) {
  const made = element("i", { className, "aria-hidden": "true" });
  const [left, right] = [Math.max(0, Math.min(place(from), place(to))), Math.min(100, Math.max(place(from), place(to)))];
  made.style.left = `${left}%`;
  made.style.width = `${right - left}%`;
  return made;
}

async function ask() {
  running?.abort();
  running = new AbortController();
  const dim = showDim();
  try {
    const body = { statement: $("statement").value, query: $("query").value, dim };
    const found = await request("/v1/symbols", body, running.signal);
    $("names").replaceChildren(...found.names.slice(0, 40).map((name) => {
      const button = element("button", { type: "button", text: `${name}?`, "aria-label": `Ask ${name}` });
      button.onclick = () => { $("query").value = /^\w+$/.test(name) ? name : `"${name}"`; ask(); };
      return button;
    }));
    $("answers").replaceChildren(...found.answers.map((each) => {
      const name = element("div", { className: "name", children: [
        bar(-2 * found.noise, 2 * found.noise, "band"),
        bar(0, each.response, each.response < 0 ? "bar negative" : "bar"),
        element("span", { text: each.name }),
        element("span", { className: "number", text:
          `response ${each.response.toFixed(2)} · ${each.present ? "present" : "absent"}` }),
      ] });
      return element("li", { className: each.present ? "present" : "", children: [name] });
    }));
    const best = found.answers[0];
    $("status").className = "note";
    $("status").textContent = best ? `${$("query").value} → ${best.name}, response ${best.response.toFixed(2)}` :
      `${found.names.length} names in one vector of ${dim} numbers; ask for one of them.`;
    $("noise").textContent = best ? `The dashed band is the expected noise: an absent name responds with 0 ± ` +
      `${(2 * found.noise).toFixed(2)} (two standard deviations). Noise ranks a wrong name first with probability ` +
      `${(100 * found.error).toFixed(1)} %. A vector of ${dim} numbers holds ${found.pairs_held} pairs at 3 % errors.` : "";
  } catch (error) {
    if (error.name === "AbortError") return;
    $("status").className = "note error";
    $("status").textContent = error.message;
    $("answers").replaceChildren();
    $("noise").textContent = "";
  }
}

const soon = debounced(150, ask);
for (const id of ["statement", "query", "dim"]) $(id).addEventListener("input", () => { showDim(); soon(); });
ask();
