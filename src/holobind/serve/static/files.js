// Texts of files, and tables as CSV.

const MAX_FILE_BYTES = 50_000_000;

/** The content of a file; an Error if it is too large. */
export async function readFile(file, advice) {
  if (file.size > MAX_FILE_BYTES) throw new Error(`${file.name} has more than ${MAX_FILE_BYTES / 1e6} MB; ${advice}`);
  return (await file.text()).replace(/^\ufeff/, "");
}

export function parseCsv(content, separator) {
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

/** The texts of a file: a text a line, a table with a column “text”, or JSON lines. */
export function textsOf(name, content) {
  if (/\.(jsonl|ndjson|json)$/i.test(name)) {
    return content.split("\n").map((line, i) => [line, i]).filter(([line]) => line.trim()).map(([line, i]) => {
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
    return rows.filter((row) => row.some((cell) => cell !== "")).map((row) => row[column] ?? "");
  }
  return content.split(/\r?\n/).filter((line) => line.trim());
}

/** A cell of CSV; a spreadsheet does not take it for a formula. */
export function quoted(value) {
  const text = String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Let a file be dropped on an element. */
export function onDrop(target, take) {
  let inside = 0;
  const mark = () => target.classList.toggle("over", inside > 0);
  target.addEventListener("dragenter", (event) => { event.preventDefault(); inside++; mark(); });
  target.addEventListener("dragover", (event) => event.preventDefault());
  target.addEventListener("dragleave", () => { inside = Math.max(0, inside - 1); mark(); });
  target.addEventListener("drop", (event) => {
    inside = 0;
    mark();
    const file = event.dataTransfer?.files?.[0];
    if (!file) return;
    event.preventDefault();
    take(file);
  });
}
