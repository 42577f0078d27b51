// What both pages share: elements, requests with a token, and waiting until typing pauses.

export const $ = (id) => document.getElementById(id);

/** An element with a class, a text and further elements. */
export function element(name, { className = "", text = "", children = [], ...attributes } = {}) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// An address that ends with #token=... gives the token once; it is not sent to the server, nor kept in the history.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("holobind-token", given);
  history.replaceState(null, "", location.pathname);
}
let token = sessionStorage.getItem("holobind-token") || "";

function askToken() {
  const dialog = $("token-dialog");
  return new Promise((resolve) => {
    const close = (value) => {
      if (!dialog.open) return;
      dialog.close();
      resolve(value);
    };
    $("token-ok").onclick = () => close($("token").value.trim());
    $("token-cancel").onclick = () => close("");
    $("token").onkeydown = (event) => { if (event.key === "Enter") close($("token").value.trim()); };
    dialog.oncancel = () => resolve("");
    dialog.showModal();
  });
}

let asking = null;

/** The answer to a request as JSON; an Error with the server's words if it refuses. */
export async function request(path, body, signal) {
  for (;;) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (answer.ok) return answer.json();
    if (answer.status === 401) {
      asking = asking || askToken();
      token = await asking;
      asking = null;
      sessionStorage.setItem("holobind-token", token);
      if (token) continue;
    }
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    const error = new Error(problem.detail);
    error.status = answer.status;
    error.retryAfter = Number(answer.headers.get("Retry-After")) || 0;
    throw error;
  }
}

/** A function that runs once its calls pause for some milliseconds. */
export function debounced(milliseconds, work) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}

export const percent = (value) => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;
export const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
